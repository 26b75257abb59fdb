"""Who owns which elements, as data that any process can make; nothing here communicates.

`partition`: the one type, what it answers, and its validator. Three ways to make one: `flat`, `per_parameter`,
`whole_tensors`.
"""
