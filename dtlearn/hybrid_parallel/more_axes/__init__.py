"""Chapter 13 in a model of chapter 12: `context` divides tokens over cp, `experts` experts over ep, `traffic` counts.

They know groups and modules, no mesh and no recipe.
"""
