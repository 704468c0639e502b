"""Fill values through every layer: found by repetition or by convention, or read from what the layer can see."""

import numcodecs
import numpy as np
import pytest
import zarr

import pumice
from pumice.zarr import PumiceCodec

FILLS = [-999, -9999, -32768, 1e20, 9.969209968386869e36, -1e34, 9999, 99999]
PRESETS = ["fast", "balanced", "small", "max"]


def masked_field(fill, share, dtype="f4"):
    """A field of 60 x 90 around 285, and which of its values are a fill value."""
    rng = np.random.default_rng(5)
    field = 285 + 15 * np.sin(np.arange(5400).reshape(60, 90) / 100) + rng.random((60, 90))
    mask = rng.random((60, 90)) < share
    mask[:3, 50] = mask[40, 10] = True
    if share >= 0.4:
        mask[:20, :30] = True  # a whole chunk
    return np.where(mask, fill, field).astype(dtype), mask


def assert_kept(field, mask, restored, bound=0.033):
    assert np.array_equal(field[mask], restored[mask])
    assert np.abs(field[~mask] - restored[~mask]).max() <= bound


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bound", [{"rel": 1e-3}, {"abs": 0.03}])
def test_arrays_and_numcodecs(preset, dtype, bound):
    for fill in FILLS:
        for share in [0, 0.01, 0.4]:
            field, mask = masked_field(fill, share, dtype)
            data = pumice.compress(field, preset=preset, **bound)
            assert_kept(field, mask, pumice.decompress(data))
            assert pumice.info(data)["fills"] == [field[mask][0]]
            codec = numcodecs.get_codec({"id": "pumice", "preset": preset, **bound})
            assert_kept(field, mask, codec.decode(codec.encode(field)))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("bound", [{"rel": 1e-3}, {"abs": 0.03}])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr(zarr_format, preset, bound):
    for fill in FILLS:
        for share in [0, 0.01, 0.4]:
            field, mask = masked_field(fill, share)
            if zarr_format == 3:
                options = {"serializer": PumiceCodec(preset=preset, **bound), "compressors": None}
            else:
                options = {"compressors": numcodecs.get_codec({"id": "pumice", "preset": preset, **bound})}
            array = zarr.create_array(
                {}, shape=field.shape, chunks=(20, 30), dtype="f4", zarr_format=zarr_format, filters=None, **options
            )
            array[:] = field
            assert_kept(field, mask, array[:])


def test_the_fill_value_of_a_zarr_array_counts_unless_it_is_0():
    for fill in [290.0, -1.0, 0.0]:
        field, mask = masked_field(fill, 0.01)
        array = zarr.create_array(
            {}, shape=field.shape, chunks=(60, 90), dtype="f4", fill_value=fill, serializer=PumiceCodec(abs=5.0), compressors=None,
        )
        array[:] = field
        assert_kept(field, mask, array[:], 5.0)
    # Exact zeros that are no fill value do not become masks.
    field = np.maximum(masked_field(0, 0)[0] - 285, 0)[:, :80]
    array = zarr.create_array({}, shape=(60, 80), chunks=(60, 80), dtype="f4", serializer=PumiceCodec(abs=1e-3), compressors=None)
    array[:] = field
    chunk = array.store._store_dict["c/0/0"].to_bytes()
    assert pumice.info(chunk)["fills"] == []


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("bound", [{"rel": 1e-3}, {"abs": 0.03}])
def test_hdf5_with_missing_value_alone(tmp_path, preset, bound):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for dtype in ["<f4", ">f8"]:
            for fill in FILLS:
                for share in [0, 0.01, 0.4]:
                    field, mask = masked_field(fill, share, dtype)
                    name = f"{dtype}/{fill}/{share}"
                    data = file.create_dataset(name, data=field, chunks=(20, 30), **pumice.hdf5(preset=preset, **bound))
                    data.attrs["missing_value"] = field[mask][0]
                    data.id.flush()
    with h5py.File(tmp_path / "x.h5") as file:
        for dtype in ["<f4", ">f8"]:
            for fill in FILLS:
                for share in [0, 0.01, 0.4]:
                    field, mask = masked_field(fill, share, dtype)
                    assert_kept(field, mask, file[f"{dtype}/{fill}/{share}"][...])


def test_several_values_are_named_for_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    field, _ = masked_field(290.5, 0)
    named = [290.5, 250.0, 330.0, 260.0]
    for i, fill in enumerate(named):
        field[5 * i, :30] = fill
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("t", data=field, chunks=(30, 90), **pumice.hdf5(abs=5.0, fill_value=named))
    with h5py.File(tmp_path / "x.h5") as file:
        assert_kept(field, np.isin(field, named), file["t"][...], 5.0)
    with pytest.raises(pumice.InvalidArgumentError, match="at most 4"):
        pumice.hdf5(abs=5.0, fill_value=[1, 2, 3, 4, 5])


@pytest.mark.parametrize("engine", ["h5netcdf", "zarr"])
def test_xarray(tmp_path, engine):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    for fill in FILLS:
        for attribute in ["missing_value", "_FillValue"]:
            field, mask = masked_field(fill, 0.01)
            data = xarray.Dataset({"t": (("y", "x"), np.where(mask, np.float32("nan"), field))})
            encoding = {attribute: np.float32(fill), "dtype": "f4"}
            other = "_FillValue" if attribute == "missing_value" else "missing_value"
            encoding |= {other: None} if other == "_FillValue" else {}
            path = tmp_path / f"{fill}-{attribute}"
            if engine == "h5netcdf":
                data.to_netcdf(path, engine=engine, encoding={"t": {**encoding, "chunksizes": (20, 30), **pumice.hdf5(rel=1e-3)}})
                opened = xarray.open_dataset(path, engine=engine)
            else:
                codec = {"serializer": PumiceCodec(rel=1e-3), "compressors": None, "chunks": (20, 30)}
                data.to_zarr(path, zarr_format=3, encoding={"t": {**encoding, **codec}})
                opened = xarray.open_zarr(path)
            restored = opened["t"].values
            opened.close()
            assert np.array_equal(np.isnan(restored), mask), (fill, attribute)
            assert np.abs(restored - field)[~mask].max() <= 0.033


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("attribute", ["missing_value", "_FillValue"])
def test_the_encoding_for_zarr_names_the_missing_value(tmp_path, attribute, zarr_format):
    """One in the midst of the values, which the codec could not find."""
    xarray = pytest.importorskip("xarray")
    from pumice.zarr import xarray_encoding

    field, mask = masked_field(289.5, 0.1)
    data = xarray.Dataset(
        {"t": (("y", "x"), np.where(mask, np.float32("nan"), field)), "y_bnds": (("y", "n"), np.zeros((60, 2)))},
        coords={"y": ("y", np.arange(60.0), {"bounds": "y_bnds"})},
    )
    data["t"].encoding = {"_FillValue": None, attribute: np.float32(289.5), "chunks": (20, 30)}
    encoding = xarray_encoding(data, zarr_format=zarr_format, abs=0.3)
    assert set(encoding) == {"t"}
    data.to_zarr(tmp_path / "a.zarr", zarr_format=zarr_format, encoding=encoding, consolidated=False)
    stored = zarr.open_array(tmp_path / "a.zarr" / "t")
    assert stored.chunks == (20, 30)
    codec = stored.compressors[0].get_config() if zarr_format == 2 else stored.serializer.to_dict()["configuration"]
    assert (codec["abs"], codec["fill_value"]) == (0.3, 289.5)
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as again:
        assert np.array_equal(np.isnan(again["t"].values), mask)
        assert np.abs(again["t"].values - field)[~mask].max() <= 0.3


def test_a_ninth_fill_value_is_refused():
    z = zarr.create_array(
        {}, shape=(60, 90), dtype="f4", fill_value=9.0, serializer=PumiceCodec(abs=1, fill_value=list(range(1, 9))), compressors=None,
    )
    with pytest.raises(ValueError, match="8 fill values, and the array another one, 9: leave one out"):
        z[...] = masked_field(1, 0.1)[0]


def test_summaries_show_what_was_taken_for_a_fill_value(tmp_path):
    field, _ = masked_field(-999, 0.01)
    field[0, 0] = np.nan
    summary = pumice.save(tmp_path / "x.pum", field, rel=1e-3)
    found = pumice.analyze(field)
    assert found["values"]["fills"][0]["value"] == summary["fills"][0] == pumice.info(tmp_path / "x.pum")["fills"][0] == -999
