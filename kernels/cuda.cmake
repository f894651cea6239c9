# The CUDA backend.

# CMake 3.25 has no flag for C++20 with nvcc. The contract's operations are intrinsics that nothing contracts; -fmad=false
# keeps the rest of the arithmetic as it is written, too. Compressed, the library is a quarter of its size.
set(SAMEBITS_CUDA_OPTIONS
  $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all -fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${SAMEBITS_WERROR}>>:-Werror=all-warnings>)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

# Everything but the C ABI, whose names the CPU backend has as well; tests link both.
file(GLOB SAMEBITS_CUDA_SOURCES CONFIGURE_DEPENDS
     logits/*.cu logits/*.cpp select/*.cu select/*.cpp fused/*.cu dispatch/*.cu dispatch/*.cpp cuda/*.cu cuda/*.cpp)
list(REMOVE_ITEM SAMEBITS_CUDA_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/cuda/abi.cpp
                                       ${CMAKE_CURRENT_SOURCE_DIR}/cuda/front_abi.cpp)
add_library(samebits_cuda_kernels STATIC ${SAMEBITS_CUDA_SOURCES})
target_compile_options(samebits_cuda_kernels PRIVATE ${SAMEBITS_CUDA_OPTIONS})
target_link_libraries(samebits_cuda_kernels PUBLIC samebits_common CUDA::cudart_static)
set_target_properties(samebits_cuda_kernels PROPERTIES
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON LINKER_LANGUAGE CXX)

# What serves a call on a GPU without the tensor cores of sm_90a compiles for others, too, without a warning; of the
# bookkeeping what has instructions of one architecture.
if(SAMEBITS_BUILD_TESTS)
  add_library(samebits_cuda_plain_elsewhere OBJECT logits/plain.cu logits/prepare.cu logits/split_columns.cu select/select.cu
                                                   dispatch/bookkeep_rows.cu)
  target_compile_options(samebits_cuda_plain_elsewhere PRIVATE ${SAMEBITS_CUDA_OPTIONS})
  target_link_libraries(samebits_cuda_plain_elsewhere PRIVATE samebits_common)
  set_target_properties(samebits_cuda_plain_elsewhere PROPERTIES CUDA_ARCHITECTURES "80-real;100-real")
endif()

# libsamebits_cuda.so, for engines, and for the program, which loads it as its backend `cuda` from its own folder.
add_library(samebits_cuda SHARED cuda/abi.cpp cuda/front_abi.cpp)
add_library(samebits::cuda ALIAS samebits_cuda)
target_compile_definitions(samebits_cuda PRIVATE SAMEBITS_VERSION="${PROJECT_VERSION}")
target_link_libraries(samebits_cuda PUBLIC samebits::abi PRIVATE samebits_cuda_kernels)
target_link_options(samebits_cuda PRIVATE -Wl,-Bsymbolic
                                          -Wl,--version-script,${CMAKE_CURRENT_SOURCE_DIR}/common/exports.map)
set_target_properties(samebits_cuda PROPERTIES
  EXPORT_NAME cuda LINKER_LANGUAGE CXX CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/common/exports.map LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
  BUILD_RPATH "$ORIGIN/lib" INSTALL_RPATH "$ORIGIN/lib")
install(TARGETS samebits_cuda EXPORT samebits LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# CUPTI is loaded at run time where it is found, and only its header is used here.
target_sources(samebits_bench PRIVATE bench/cupti.cpp bench/gpu_kernels.cu bench/gpu_timer.cpp)
target_compile_options(samebits_bench PRIVATE ${SAMEBITS_CUDA_OPTIONS})
target_link_libraries(samebits_bench PUBLIC CUDA::cudart_static PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(samebits_bench PROPERTIES LINKER_LANGUAGE CXX CUDA_STANDARD ${CMAKE_CUDA_STANDARD} CUDA_STANDARD_REQUIRED ON)

# libsamebits_bench.so, which ci/gpu-bench-torch.py loads.
add_library(samebits_bench_c SHARED bench/c_api.cpp bench/cupti.cpp bench/gpu_kernels.cu bench/gpu_timer.cpp
                                    bench/records.cpp)
target_compile_options(samebits_bench_c PRIVATE ${SAMEBITS_CUDA_OPTIONS})
target_link_libraries(samebits_bench_c PRIVATE samebits::options CUDA::cudart_static ${CMAKE_DL_LIBS})
set_target_properties(samebits_bench_c PROPERTIES
  OUTPUT_NAME samebits_bench LINKER_LANGUAGE CXX CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

if(SAMEBITS_BUILD_TESTS)
  include(mutants/cuda_mutants.cmake)
  file(GLOB SAMEBITS_CUDA_TESTS CONFIGURE_DEPENDS test_cuda/*.cu test_cuda/*.cpp)
  add_executable(cuda_test ${SAMEBITS_CUDA_TESTS})
  target_compile_options(cuda_test PRIVATE ${SAMEBITS_CUDA_OPTIONS})
  target_link_libraries(cuda_test PRIVATE samebits_cuda_kernels samebits::cpu GTest::gtest GTest::gtest_main
                                          ${CMAKE_DL_LIBS})
  add_dependencies(cuda_test samebits_cuda)  # it loads the library that lies beside it
  set_target_properties(cuda_test PROPERTIES
    LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} BUILD_RPATH "$ORIGIN/lib")
  samebits_read_headers_once(cuda_test <gtest/gtest.h>)
  gtest_discover_tests(cuda_test DISCOVERY_TIMEOUT 60)
endif()
