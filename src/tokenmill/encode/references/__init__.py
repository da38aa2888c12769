"""Reference tokenizers: the libraries and Python objects that define the right ids."""
