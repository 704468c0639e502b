"""Readers of the file formats that the packages use: one module each, one function `path -> numpy array`.

numpy and the libraries of netCDF and HDF5 are imported when a file is read, so that the table of arrays, and with it
the check of docs/data.md, needs the standard library only.
"""
