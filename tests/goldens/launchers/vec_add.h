/* vec_add: launches compiled kernels through the CUDA driver.

   Written by warploom 0.1.0; write it again instead of editing it.

   Computes: the program `vec_add`.
   Arguments, in order, each an address in device memory:
     a: f32 (IEEE binary32), read
     b: f32 (IEEE binary32), read
     c: f32 (IEEE binary32), written
   A written argument must not overlap another one.

   Shapes, with strides in elements and the alignment of the address in bytes, and the chips that have kernels for them:
   - a [1024], strides [1], at a multiple of 16, 4096 bytes
     b [1024], strides [1], at a multiple of 16, 4096 bytes
     c [1024], strides [1], at a multiple of 16, 4096 bytes
       sm_80: kernels.ptx
         vec_add: grid 8 x 1 x 1, block 128 x 1 x 1

   How to use it:

     vec_add_kernels *kernels = NULL;
     vec_add_variant *variant = NULL;
     int code = vec_add_load(&kernels);                       (once for a context, which is current)
     if (code == 0) code = vec_add_find(kernels, &shapes, &variant);
     if (code == 0) (allocate vec_add_workspace_bytes(variant) bytes of device memory)
     if (code == 0) code = vec_add_launch(variant, stream, ..);
     if (code != 0) puts(vec_add_error(code));
     vec_add_unload(kernels);

   Every function returns 0 or a code: a CUresult of the driver if it is positive, a code of this header if it is negative. The context of
   vec_add_load has to be current in every call. The functions must not run on two threads at once with the same vec_add_kernels.
   Neither cuda.h nor the CUDA toolkit is needed, to build or to run: the driver's library is opened by vec_add_load. On Linux link
   with -ldl where the C library is older than glibc 2.34. */

#ifndef VEC_ADD_H
#define VEC_ADD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CUstream and cudaStream_t are pointers to this structure. */
struct CUstream_st;

/* The kernels of this file for the device of a context. */
typedef struct vec_add_kernels vec_add_kernels;

/* The kernels for one set of shapes. They belong to the vec_add_kernels that they were found in. */
typedef struct vec_add_variant vec_add_variant;

/* The shapes of the arguments, outermost dimension first. */
typedef struct vec_add_shapes {
    int64_t a[1];
    int64_t b[1];
    int64_t c[1];
} vec_add_shapes;

enum {
    VEC_ADD_ERROR_SHAPE = -1,     /* there are no kernels for these shapes */
    VEC_ADD_ERROR_CHIP = -2,      /* there are no kernels for the device, or none of these shapes */
    VEC_ADD_ERROR_ALIGN = -3,     /* an address is not a multiple of its alignment */
    VEC_ADD_ERROR_WORKSPACE = -4, /* the workspace is missing, or not at a multiple of 256 bytes */
    VEC_ADD_ERROR_FIT = -5,       /* not one block of a persistent kernel fits on the device */
    VEC_ADD_ERROR_DRIVER = -6,    /* the driver's library is not found, or is older than the kernels need */
    VEC_ADD_ERROR_MEMORY = -7,    /* the host has no memory left */
    VEC_ADD_ERROR_NULL = -8,      /* a pointer that must not be null is null */
    VEC_ADD_ERROR_POOLS = -9,     /* the device or its driver has no memory pools, which vec_add_launch_ordered needs */
    VEC_ADD_ERROR_SIZE = -10      /* a dynamic size has a value that the kernels do not take */
};

/* The shapes that there are kernels for, on one chip or another. */
enum { VEC_ADD_SHAPES = 1 };
extern const vec_add_shapes vec_add_all_shapes[VEC_ADD_SHAPES];

/* The meaning of a code; for a code of the driver, the driver's name of it. The text stays valid. */
const char *vec_add_error(int code);

/* Opens the driver's library and chooses kernels for the device of the current context. */
int vec_add_load(vec_add_kernels **kernels);

/* Unloads the modules and frees the memory of the kernels. All launches must have finished. Null is allowed. */
void vec_add_unload(vec_add_kernels *kernels);

/* Finds the kernels for these shapes, and loads their module at the first call for them. */
int vec_add_find(vec_add_kernels *kernels, const vec_add_shapes *shapes, vec_add_variant **variant);

/* Bytes of device memory that a launch needs besides its arguments, at a multiple of 256 bytes; 0 if it needs none.
   What they hold between launches does not matter. Two launches that may run at the same time need two. */
size_t vec_add_workspace_bytes(const vec_add_variant *variant);

/* Puts the kernels on a stream: null is the default stream. A launch allocates nothing and waits for nothing, so a stream that is being
   captured takes it. The arguments and the workspace (0 if there is none) are addresses in device memory, as a CUdeviceptr is one. */
int vec_add_launch(vec_add_variant *variant, struct CUstream_st *stream,
        unsigned long long a,
        unsigned long long b,
        unsigned long long c, unsigned long long workspace);

/* As vec_add_launch, with workspace that is allocated in the stream before the kernels and freed there after them (cuMemAllocAsync and
   cuMemFreeAsync, CUDA 11.2). Nothing waits for the stream; a stream that is being captured takes both as nodes of the graph. */
int vec_add_launch_ordered(vec_add_variant *variant, struct CUstream_st *stream,
        unsigned long long a,
        unsigned long long b,
        unsigned long long c);

/* vec_add_find and vec_add_launch_ordered. The first call for kernels loads their module, which a stream that is being captured
   refuses. */
int vec_add_dispatch(vec_add_kernels *kernels, const vec_add_shapes *shapes, struct CUstream_st *stream,
        unsigned long long a,
        unsigned long long b,
        unsigned long long c);

#ifdef __cplusplus
}
#endif

#endif
