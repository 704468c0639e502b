# find_package(Pumice) gives
#   Pumice::pumice         the shared library with its header
#   Pumice::pumice_static  the static library with its header
#   Pumice::fortran        the Fortran module `pumice`, as a source for the target that links it, and the shared library
# This file may be moved with its prefix: it looks for the rest from where it is, <prefix>/share/pumice/cmake.

get_filename_component(_pumice_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_pumice_dirs "${_pumice_prefix}/lib" "${_pumice_prefix}/lib64" "${_pumice_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
find_library(Pumice_SHARED_LIBRARY NAMES libpumice.so libpumice.dylib pumice.dll.lib PATHS ${_pumice_dirs} NO_DEFAULT_PATH)
find_library(Pumice_STATIC_LIBRARY NAMES libpumice.a pumice.lib PATHS ${_pumice_dirs} NO_DEFAULT_PATH)
find_path(Pumice_INCLUDE_DIR pumice.h PATHS "${_pumice_prefix}/include" NO_DEFAULT_PATH)
mark_as_advanced(Pumice_SHARED_LIBRARY Pumice_STATIC_LIBRARY Pumice_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Pumice REQUIRED_VARS Pumice_SHARED_LIBRARY Pumice_INCLUDE_DIR
                                  VERSION_VAR Pumice_VERSION)

if(Pumice_FOUND AND NOT TARGET Pumice::pumice)
  # UNKNOWN, as an import library stands for a DLL where there are such.
  add_library(Pumice::pumice UNKNOWN IMPORTED)
  set_target_properties(Pumice::pumice PROPERTIES
    IMPORTED_LOCATION "${Pumice_SHARED_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Pumice_INCLUDE_DIR}")
endif()

if(Pumice_FOUND AND Pumice_STATIC_LIBRARY AND NOT TARGET Pumice::pumice_static)
  find_package(Threads REQUIRED)
  add_library(Pumice::pumice_static STATIC IMPORTED)
  set_target_properties(Pumice::pumice_static PROPERTIES
    IMPORTED_LOCATION "${Pumice_STATIC_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Pumice_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()

if(Pumice_FOUND AND EXISTS "${Pumice_INCLUDE_DIR}/pumice.f90" AND NOT TARGET Pumice::fortran)
  add_library(Pumice::fortran INTERFACE IMPORTED)
  set_target_properties(Pumice::fortran PROPERTIES
    INTERFACE_SOURCES "${Pumice_INCLUDE_DIR}/pumice.f90"
    INTERFACE_LINK_LIBRARIES Pumice::pumice)
endif()
