"""Liu 2014, Table I: protocol, evaluation, features of operations, Eq. 5."""
