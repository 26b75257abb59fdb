"""The commands about exercises: grade, watch, grade-class, a module each; and those that are about one exercise."""
