"""What figures of a model's predictions show, as values and as pictures.

`evidence` has reads with held-out predictions, `data` what each figure shows of them (the command
line prints it, REST sends it), `figures` draws that. Only `figures` imports matplotlib.
"""
