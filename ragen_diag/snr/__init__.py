"""Which groups an SNR-aware filter keeps (RAGEN-2, Sec. 4): scores of groups in, groups out."""
