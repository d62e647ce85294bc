"""Predicts what each layout would cost, and says which one to build. Pure: no I/O.

`models` predict, `candidates` lists layouts, `portfolio` chooses among them. Fitting
(`models.regression`, `models.model_selection`) needs statsmodels.
"""
