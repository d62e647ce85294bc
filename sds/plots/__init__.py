"""What figures of a model's predictions show, as values and as pictures.

`evidence` has reads with held-out predictions; `data` makes of them what each figure shows. These
`values` the command line prints, REST sends, and `figures`, the only module that imports
matplotlib, draws.
"""
