# Install component `gpu`: a folder for a machine that has a GPU and none of this one's libraries. The program, the test
# program and the router library lie side by side, the shared libraries that they need in lib/ (RPATH $ORIGIN/lib, set by
# the preset `gpu`, as is the static C++ library). The CUDA runtime is static in every build.
install(TARGETS samebits cuda_test samebits_cuda samebits_bench_c RUNTIME_DEPENDENCY_SET samebits_gpu
        RUNTIME DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL
        LIBRARY DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL)
# Every system has these, and they must be the system's own: libcuda and the other programs there need them too.
install(RUNTIME_DEPENDENCY_SET samebits_gpu
        PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so" "^ld-linux"
        LIBRARY DESTINATION lib COMPONENT gpu EXCLUDE_FROM_ALL)
install(PROGRAMS ci/gpu ci/gpu-bench ci/gpu-bench-torch.py ci/gpu-mutants ci/gpu-torch.py DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL)
install(DIRECTORY fixtures/cases DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL)
