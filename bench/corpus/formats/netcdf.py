"""NetCDF, classic or on HDF5: the stored values of a variable, neither masked nor scaled."""


def netcdf(variable):
    def read(path):
        import netCDF4

        with netCDF4.Dataset(path) as dataset:
            dataset.set_auto_maskandscale(False)
            return dataset[variable][...]

    return read
