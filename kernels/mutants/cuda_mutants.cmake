# A library for each line of cuda_mutants.txt, in mutants/ of the build folder.
set(SAMEBITS_CUDA_MUTANTS_DIR ${PROJECT_BINARY_DIR}/mutants)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cuda_mutants.txt)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/cuda_mutants.txt SAMEBITS_CUDA_MUTANT_LINES REGEX "^[a-z]")
set(SAMEBITS_CUDA_MUTANTS)
foreach(line IN LISTS SAMEBITS_CUDA_MUTANT_LINES)
  string(REGEX MATCH "^([a-z_]+) +([^ ]+)" unused "${line}")
  set(name ${CMAKE_MATCH_1})
  set(source ${CMAKE_MATCH_2})
  set(library samebits_cuda_${name})
  string(TOUPPER ${name} upper_name)
  # What this object defines is not taken from the static library.
  add_library(${library} SHARED ${source} $<TARGET_OBJECTS:samebits_cuda>)
  target_compile_definitions(${library} PRIVATE SAMEBITS_MUTANT_${upper_name})
  target_compile_options(${library} PRIVATE ${SAMEBITS_CUDA_OPTIONS})
  target_link_libraries(${library} PRIVATE samebits_cuda_kernels)
  target_link_options(${library} PRIVATE -Wl,-Bsymbolic
                                         -Wl,--version-script,${CMAKE_CURRENT_SOURCE_DIR}/common/exports.map)
  set_target_properties(${library} PROPERTIES
    LINKER_LANGUAGE CXX CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/common/exports.map LIBRARY_OUTPUT_DIRECTORY ${SAMEBITS_CUDA_MUTANTS_DIR})
  list(APPEND SAMEBITS_CUDA_MUTANTS ${library})
endforeach()
add_custom_target(samebits_cuda_mutants DEPENDS ${SAMEBITS_CUDA_MUTANTS})
install(TARGETS ${SAMEBITS_CUDA_MUTANTS} LIBRARY DESTINATION mutants COMPONENT gpu EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/cuda_mutants.txt DESTINATION mutants COMPONENT gpu EXCLUDE_FROM_ALL)
