/* @name@: launches compiled kernels through the CUDA driver.

   Written by warploom @version@; write it again instead of editing it.

@about@
   How to use it:

     @name@_kernels *kernels = NULL;
     @name@_variant *variant = NULL;
     int code = @name@_load(&kernels);                       (once for a context, which is current)
     if (code == 0) code = @name@_find(kernels, &shapes, &variant);
     if (code == 0) (allocate @name@_workspace_bytes(variant) bytes of device memory)
     if (code == 0) code = @name@_launch(variant, stream, ..);
     if (code != 0) puts(@name@_error(code));
     @name@_unload(kernels);

   Every function returns 0 or a code: a CUresult of the driver if it is positive, a code of this header if it is negative. The context of
   @name@_load has to be current in every call. The functions must not run on two threads at once with the same @name@_kernels.
   Neither cuda.h nor the CUDA toolkit is needed, to build or to run: the driver's library is opened by @name@_load. On Linux link
   with -ldl where the C library is older than glibc 2.34. */

#ifndef @NAME@_H
#define @NAME@_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CUstream and cudaStream_t are pointers to this structure. */
struct CUstream_st;

/* The kernels of this file for the device of a context. */
typedef struct @name@_kernels @name@_kernels;

/* The kernels for one set of shapes. They belong to the @name@_kernels that they were found in. */
typedef struct @name@_variant @name@_variant;

/* The shapes of the arguments, outermost dimension first@scalars@. */
typedef struct @name@_shapes {
@shapes_fields@} @name@_shapes;

enum {
    @NAME@_ERROR_SHAPE = -1,     /* there are no kernels for these shapes */
    @NAME@_ERROR_CHIP = -2,      /* there are no kernels for the device, or none of these shapes */
    @NAME@_ERROR_ALIGN = -3,     /* an address is not a multiple of its alignment */
    @NAME@_ERROR_WORKSPACE = -4, /* the workspace is missing, or not at a multiple of @workspace_align@ bytes */
    @NAME@_ERROR_FIT = -5,       /* not one block of a persistent kernel fits on the device */
    @NAME@_ERROR_DRIVER = -6,    /* the driver's library is not found, or is older than the kernels need */
    @NAME@_ERROR_MEMORY = -7,    /* the host has no memory left */
    @NAME@_ERROR_NULL = -8,      /* a pointer that must not be null is null */
    @NAME@_ERROR_POOLS = -9,     /* the device or its driver has no memory pools, which @name@_launch_ordered needs */
    @NAME@_ERROR_SIZE = -10      /* a dynamic size has a value that the kernels do not take */
};

/* The shapes that there are kernels for, on one chip or another. */
enum { @NAME@_SHAPES = @shape_count@ };
extern const @name@_shapes @name@_all_shapes[@NAME@_SHAPES];@shapes_note@

/* The meaning of a code; for a code of the driver, the driver's name of it. The text stays valid. */
const char *@name@_error(int code);

/* Opens the driver's library and chooses kernels for the device of the current context. */
int @name@_load(@name@_kernels **kernels);

/* Unloads the modules and frees the memory of the kernels. All launches must have finished. Null is allowed. */
void @name@_unload(@name@_kernels *kernels);

/* Finds the kernels for these shapes, and loads their module at the first call for them. */
int @name@_find(@name@_kernels *kernels, const @name@_shapes *shapes, @name@_variant **variant);

/* Bytes of device memory that a launch needs besides its arguments, at a multiple of @workspace_align@ bytes; 0 if it needs none.
   What they hold between launches does not matter. Two launches that may run at the same time need two. */
size_t @name@_workspace_bytes(const @name@_variant *variant);

/* Puts the kernels on a stream: null is the default stream. A launch allocates nothing and waits for nothing, so a stream that is being
   captured takes it. The arguments and the workspace (0 if there is none) are addresses in device memory, as a CUdeviceptr is one. */
int @name@_launch(@name@_variant *variant, struct CUstream_st *stream@size_parameters@@parameters@, unsigned long long workspace);

/* As @name@_launch, with workspace that is allocated in the stream before the kernels and freed there after them (cuMemAllocAsync and
   cuMemFreeAsync, CUDA 11.2). Nothing waits for the stream; a stream that is being captured takes both as nodes of the graph. */
int @name@_launch_ordered(@name@_variant *variant, struct CUstream_st *stream@size_parameters@@parameters@);

/* @name@_find and @name@_launch_ordered@dispatch_note@. The first call for kernels loads their module, which a stream that is being captured
   refuses. */
int @name@_dispatch(@name@_kernels *kernels, const @name@_shapes *shapes, struct CUstream_st *stream@parameters@);

#ifdef __cplusplus
}
#endif

#endif
