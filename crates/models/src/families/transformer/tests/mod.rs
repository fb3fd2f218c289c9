//! Comparison with PyTorch's layers. `make.py` made the fixture; no Python is needed here.

mod peer;
