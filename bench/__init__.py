"""Comparisons and tables. Run each from the repository root, as python -m bench.NAME.

    compare         Pumice beside other compressors: ratio, speed, bound
    fields          synthetic fields of the device benchmarks
    target_table    how well PSNR, L2 and ratio targets are met: the tables of docs/targets.md
    verify_data     bound, special values and ratio on real fields, and the same bits from the independent decoder
"""
