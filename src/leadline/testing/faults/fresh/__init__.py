"""Fresh hosts, faults and controls on which changed rules are scored, in two rounds.

Whoever changes a rule leaves this folder alone until the rule is frozen; see `rounds`.
"""
