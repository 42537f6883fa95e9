"""Models larger than memory: their weights are read from mapped files while they run.

    mapped        memory that belongs to files, and how it is given back
    pager         one block's weights at a time, through forward and backward passes
    recomputing   one block's activations at a time
    scratch       files for weights that must be converted first
    gguf          GGUF files, dequantised tensor by tensor
    decision      when a model is streamed, and what is refused
    stored        what safetensors files say that they hold
    memory        what is free, and what is held
    cost          bytes, operations and minutes on paper

The model's own forward and backward passes run, on its own parameters: masks, positions and scalings
are its own, and so are the numbers.
"""
