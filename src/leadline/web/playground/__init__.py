"""The playground: from the knobs of a design to its curves over depth, laws beside them, a verdict.

parts_of(design)      what a page shows, part by part, as JSON
curves_of(design)     all curves of one design
train_live(design)    a run of the design, step by step
"""
