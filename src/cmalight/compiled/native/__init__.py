"""A step written out in C++: recorded once, without torch's compiler, and kept from one process to the next."""
