/* @name@.c: see @name@.h. Written by warploom @version@; write it again instead of editing it.

   The first part declares the driver's types, the second has tables of the compiled kernels, and the third has the functions that load
   and launch these kernels. The file is C99 and C++11. */

#include "@name@.h"

#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

/* 1. The driver, as cuda.h declares it. Its library is opened at run time: a program that contains this file starts on a host without a
   driver, and no toolkit is needed to link it. Handles are `void *`, a CUresult is an int. */

enum {
    DEVICE_MULTIPROCESSOR_COUNT = 16,
    DEVICE_COMPUTE_CAPABILITY_MAJOR = 75,
    DEVICE_COMPUTE_CAPABILITY_MINOR = 76,
    FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    FUNCTION_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
    LAUNCH_CLUSTER_DIMENSION = 4,
    LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    PLAIN_SHARED_BYTES = 48 * 1024, /* what a launch may have without asking */
    PORTABLE_CLUSTER = 8,           /* blocks of a cluster that every device with clusters runs */
    TENSOR_MAP_BYTES = 128,
    TENSOR_MAP_ALIGN = 64,
    WORKSPACE_ALIGN = @workspace_align@,
    RESULT_NOT_SUPPORTED = 801
};

/* CUlaunchAttribute */
typedef struct launch_attribute {
    unsigned id;
    unsigned padding;
    union {
        unsigned numbers[16];
        unsigned long long aligned;
    } value;
} launch_attribute;

/* CUlaunchConfig */
typedef struct launch_config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void *stream;
    launch_attribute *attributes;
    unsigned attribute_count;
} launch_config;

typedef struct driver {
    int (*cuGetErrorName)(int code, const char **name);
    int (*cuCtxGetDevice)(int *device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleUnload)(void *module);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuFuncSetAttribute)(void *function, int attribute, int value);
    int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, void *function, int threads, size_t shared_bytes);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                          unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra);
    /* Null where the driver is older than CUDA 11.2. */
    int (*cuMemAllocAsync)(unsigned long long *address, size_t bytes, void *stream);
    int (*cuMemFreeAsync)(unsigned long long address, void *stream);
    /* Null where the driver is older than CUDA 11.8, the last one older than 12.0. */
    int (*cuLaunchKernelEx)(const launch_config *config, void *function, void **parameters, void **extra);
    int (*cuOccupancyMaxActiveClusters)(int *clusters, void *function, const launch_config *config);
    int (*cuTensorMapEncodeTiled)(void *map, int data_type, unsigned rank, void *address, const uint64_t *extents,
                                  const uint64_t *strides, const unsigned *box, const unsigned *element_strides, int interleave,
                                  int swizzle, int promotion, int fill);
} driver;

/* 2. The compiled kernels. */

/* How bulk copies find their boxes in an array: dimensions from the innermost one, strides in bytes of all others. */
typedef struct tensor_map {
    int data_type;
    unsigned rank;
    uint64_t extents[5];
    uint64_t strides[5];
    unsigned box[5];
    int swizzle;
    int promotion;
    int dynamic;   /* the dimension whose extent is a dynamic size; -1 without one */
    unsigned size; /* the number of this size */
} tensor_map;

/* What `index` of a parameter counts. */
enum { OF_ARGUMENTS, OF_WORKSPACE, OF_SIZES };

/* A parameter of a kernel: an address, the tensor map of the array there, or a dynamic size. */
typedef struct parameter {
    int kind;
    unsigned index;
    const tensor_map *map; /* null for a plain address or a size */
} parameter;

/* A number of blocks, `times * ceil(size / per)`; `per` is 0 where it is constant. */
typedef struct follows {
    unsigned size, times, per;
} follows;

/* The values of a dynamic size. */
typedef struct size_range {
    int64_t low, high, by;
} size_range;

typedef struct kernel {
    const char *entry;
    unsigned grid[3];
    unsigned block[3];
    unsigned cluster[3];
    unsigned shared_bytes;
    int persistent; /* any number of blocks in x does all the work: as many as the device holds, and no more than `grid` */
    int dependent;  /* it waits for the kernel in front of it in the stream, and may be launched before that one's end */
    unsigned parameter_count;
    const parameter *parameters;
    follows clips[3]; /* the blocks with work, of `grid` */
} kernel;

/* A program for one set of shapes and the chips that run it. */
typedef struct unit {
    unsigned shape;              /* its place in @name@_all_shapes */
    int first_chip, last_chip;   /* 90 for a device of compute capability 9.0 */
    int first_cubin_chip, last_cubin_chip; /* the devices that run `cubin`; 0 if there is none */
    const char *const *cubin;    /* pieces of CUBIN_PIECE bytes, the last one shorter */
    size_t cubin_bytes;          /* of all pieces */
    const char *const *ptx;      /* lines */
    size_t ptx_bytes;            /* of all lines */
    uint64_t workspace_bytes;
    const uint64_t *workspace;   /* where each buffer begins in the workspace */
    unsigned align[@argument_room@];           /* of the address of each argument */
    unsigned kernel_count;
    const kernel *kernels;
} unit;

@tables@
enum { CUBIN_PIECE = @cubin_piece@, ARGUMENTS = @argument_count@, SIZES = @size_count@, UNITS = @unit_count@, MOST_KERNELS = @most_kernels@, MOST_PARAMETERS = @most_parameters@ };

/* 3. Loading and launching. */

/* A tensor map as the driver encoded it for an address and a size; its place in `storage` is a multiple of 64. */
typedef struct encoded_map {
    int known;
    unsigned long long address;
    uint64_t extent; /* the dynamic one */
    unsigned char storage[TENSOR_MAP_BYTES + TENSOR_MAP_ALIGN];
} encoded_map;

typedef struct loaded_kernel {
    void *function;
    unsigned grid_x;
    int extended; /* whether it is launched with attributes */
    encoded_map maps[MOST_PARAMETERS];
} loaded_kernel;

struct @name@_variant {
    @name@_kernels *owner;
    const unit *chosen; /* null if no unit of these shapes runs on the device */
    void *module;       /* null until it is found for the first time */
    loaded_kernel kernels[MOST_KERNELS];
};

struct @name@_kernels {
    driver api;
    int chip;
    int multiprocessors;
    @name@_variant variants[@NAME@_SHAPES];
};

/* Looks an entry point up: `slot` is a pointer to a function. */
static int entry_point(void *library, const char *name, void *slot, size_t size) {
#ifdef _WIN32
    FARPROC found = GetProcAddress((HMODULE)library, name);
#else
    void *found = dlsym(library, name);
#endif
    memcpy(slot, &found, size);
    return found != NULL;
}

/* The library stays open: the driver keeps threads of its own. */
static int open_driver(driver *d) {
    int complete;
#ifdef _WIN32
    void *library = (void *)LoadLibraryA("nvcuda.dll");
#else
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) library = dlopen("libcuda.so", RTLD_NOW);
#endif
    if (library == NULL) return @NAME@_ERROR_DRIVER;
#define FIND(name, exported) entry_point(library, exported, (void *)&d->name, sizeof d->name)
    complete = FIND(cuGetErrorName, "cuGetErrorName") && FIND(cuCtxGetDevice, "cuCtxGetDevice")
            && FIND(cuDeviceGetAttribute, "cuDeviceGetAttribute") && FIND(cuModuleLoadData, "cuModuleLoadData")
            && FIND(cuModuleUnload, "cuModuleUnload") && FIND(cuModuleGetFunction, "cuModuleGetFunction")
            && FIND(cuFuncSetAttribute, "cuFuncSetAttribute")
            && FIND(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
            && FIND(cuLaunchKernel, "cuLaunchKernel");
    FIND(cuMemAllocAsync, "cuMemAllocAsync");
    FIND(cuMemFreeAsync, "cuMemFreeAsync");
    FIND(cuLaunchKernelEx, "cuLaunchKernelEx");
    FIND(cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters");
    FIND(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
#undef FIND
    return complete ? 0 : @NAME@_ERROR_DRIVER;
}

const char *@name@_error(int code) {
    driver d;
    const char *name = NULL;
    switch (code) {
    case 0: return "no error";
    case @NAME@_ERROR_SHAPE: return @shape_text@;
    case @NAME@_ERROR_CHIP: return @chip_text@;
    case @NAME@_ERROR_ALIGN: return "@name@: an address is not a multiple of the alignment that @name@.h says";
    case @NAME@_ERROR_WORKSPACE: return "@name@: the workspace is missing, or not at a multiple of @workspace_align@ bytes";
    case @NAME@_ERROR_FIT: return "@name@: not one block or cluster of a kernel fits on the device";
    case @NAME@_ERROR_DRIVER: return "@name@: there is no CUDA driver, or it is older than the kernels need (CUDA 11.8 for clusters, 12.0 for tensor maps)";
    case @NAME@_ERROR_MEMORY: return "@name@: the host has no memory left";
    case @NAME@_ERROR_NULL: return "@name@: a pointer is null";
    case @NAME@_ERROR_SIZE: return @size_text@;
    case @NAME@_ERROR_POOLS: return "@name@: the device or its driver has no memory pools, in which a stream allocates: launch with workspace of your own";
    default: break;
    }
    memset(&d, 0, sizeof d);
    if (code > 0 && open_driver(&d) == 0 && d.cuGetErrorName(code, &name) == 0 && name != NULL) return name;
    return "@name@: a code that the driver has no name for";
}

int @name@_load(@name@_kernels **kernels) {
    @name@_kernels *made;
    int code, device = 0, major = 0, minor = 0, usable = 0;
    unsigned n;
    if (kernels == NULL) return @NAME@_ERROR_NULL;
    *kernels = NULL;
    made = (@name@_kernels *)calloc(1, sizeof *made);
    if (made == NULL) return @NAME@_ERROR_MEMORY;
    code = open_driver(&made->api);
    if (code == 0) code = made->api.cuCtxGetDevice(&device);
    if (code == 0) code = made->api.cuDeviceGetAttribute(&major, DEVICE_COMPUTE_CAPABILITY_MAJOR, device);
    if (code == 0) code = made->api.cuDeviceGetAttribute(&minor, DEVICE_COMPUTE_CAPABILITY_MINOR, device);
    if (code == 0) code = made->api.cuDeviceGetAttribute(&made->multiprocessors, DEVICE_MULTIPROCESSOR_COUNT, device);
    made->chip = 10 * major + minor;
    /* Units of one shape follow one another, the best one first. */
    for (n = 0; n < UNITS && code == 0; n++) {
        @name@_variant *variant = &made->variants[units[n].shape];
        variant->owner = made;
        if (variant->chosen == NULL && units[n].first_chip <= made->chip && made->chip <= units[n].last_chip) {
            variant->chosen = &units[n];
            usable = 1;
        }
    }
    if (code == 0 && !usable) code = @NAME@_ERROR_CHIP;
    if (code != 0) {
        free(made);
        return code;
    }
    *kernels = made;
    return 0;
}

void @name@_unload(@name@_kernels *kernels) {
    unsigned n;
    if (kernels == NULL) return;
    for (n = 0; n < @NAME@_SHAPES; n++) {
        if (kernels->variants[n].module != NULL) kernels->api.cuModuleUnload(kernels->variants[n].module);
    }
    free(kernels);
}

/* The attributes of a launch, at most two. */
static unsigned attributes_of(const kernel *k, launch_attribute *attributes) {
    unsigned count = 0;
    memset(attributes, 0, 2 * sizeof *attributes);
    if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 1) {
        attributes[count].id = LAUNCH_CLUSTER_DIMENSION;
        memcpy(attributes[count].value.numbers, k->cluster, sizeof k->cluster);
        count++;
    }
    if (k->dependent) {
        attributes[count].id = LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.numbers[0] = 1;
        count++;
    }
    return count;
}

static void configure(const kernel *k, const unsigned *grid, void *stream, launch_attribute *attributes, launch_config *config) {
    memset(config, 0, sizeof *config);
    memcpy(config->grid, grid, sizeof config->grid);
    memcpy(config->block, k->block, sizeof k->block);
    config->shared_bytes = k->shared_bytes;
    config->stream = stream;
    config->attribute_count = attributes_of(k, attributes);
    config->attributes = attributes;
}

/* As many blocks of a persistent kernel as the device holds at once. */
static int resident_grid(const @name@_kernels *kernels, const kernel *k, loaded_kernel *loaded) {
    const driver *d = &kernels->api;
    unsigned resident;
    int code, count = 0;
    if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 1) {
        launch_attribute attributes[2];
        launch_config config;
        configure(k, k->grid, NULL, attributes, &config);
        code = d->cuOccupancyMaxActiveClusters(&count, loaded->function, &config);
        resident = (unsigned)count * k->cluster[0];
    } else {
        int threads = (int)(k->block[0] * k->block[1] * k->block[2]);
        code = d->cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, loaded->function, threads, k->shared_bytes);
        resident = (unsigned)count * (unsigned)kernels->multiprocessors;
    }
    if (code != 0) return code;
    if (count < 1) return @NAME@_ERROR_FIT;
    if (resident < loaded->grid_x) loaded->grid_x = resident;
    return 0;
}

static int load_kernel(const @name@_kernels *kernels, const kernel *k, void *module, loaded_kernel *loaded) {
    const driver *d = &kernels->api;
    unsigned n, cluster = k->cluster[0] * k->cluster[1] * k->cluster[2];
    int code = d->cuModuleGetFunction(&loaded->function, module, k->entry);
    loaded->grid_x = k->grid[0];
    /* A driver that cannot launch dependent kernels early runs them one after the other. */
    loaded->extended = cluster > 1 || (k->dependent && d->cuLaunchKernelEx != NULL);
    if (cluster > 1 && (d->cuLaunchKernelEx == NULL || d->cuOccupancyMaxActiveClusters == NULL)) return @NAME@_ERROR_DRIVER;
    for (n = 0; n < k->parameter_count; n++) {
        if (k->parameters[n].map != NULL && d->cuTensorMapEncodeTiled == NULL) return @NAME@_ERROR_DRIVER;
    }
    if (code == 0 && k->shared_bytes > PLAIN_SHARED_BYTES) {
        code = d->cuFuncSetAttribute(loaded->function, FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->shared_bytes);
    }
    if (code == 0 && cluster > PORTABLE_CLUSTER) {
        code = d->cuFuncSetAttribute(loaded->function, FUNCTION_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    }
    if (code == 0 && k->persistent) code = resident_grid(kernels, k, loaded);
    return code;
}

/* The cubin if the device runs it, else the PTX, which the driver compiles. Both are literals of a length that every compiler takes. */
static int load_module(const @name@_kernels *kernels, const unit *u, void **module) {
    int code, binary = u->first_cubin_chip <= kernels->chip && kernels->chip <= u->last_cubin_chip;
    size_t bytes = binary ? u->cubin_bytes : u->ptx_bytes, done = 0;
    char *image = (char *)malloc(bytes + 1);
    unsigned n;
    if (image == NULL) return @NAME@_ERROR_MEMORY;
    for (n = 0; done < bytes; n++) {
        const char *piece = binary ? u->cubin[n] : u->ptx[n];
        size_t rest = bytes - done, size = rest;
        if (!binary) size = strlen(piece);
        else if (rest > CUBIN_PIECE) size = CUBIN_PIECE;
        memcpy(image + done, piece, size);
        done += size;
    }
    image[bytes] = 0;
    code = kernels->api.cuModuleLoadData(module, image);
    free(image);
    return code;
}

/* Whether the kernels of shapes `at` take these, and the dynamic sizes that these have. */
static int sizes_of(unsigned at, const @name@_shapes *given, int64_t *sizes) {
    @name@_shapes known = @name@_all_shapes[at];
    int n;
@size_reads@@size_writes@    for (n = 0; n < SIZES; n++) {
        const size_range *range = &ranges[at][n];
        if (sizes[n] < range->low || sizes[n] > range->high || sizes[n] % range->by != 0) return 0;
    }
    return memcmp(&known, given, sizeof known) == 0;
}

int @name@_find(@name@_kernels *kernels, const @name@_shapes *shapes, @name@_variant **variant) {
    @name@_variant *found = NULL;
    int64_t sizes[@size_room@] = {0};
    unsigned n;
    int code = 0;
    if (variant != NULL) *variant = NULL;
    if (kernels == NULL || shapes == NULL || variant == NULL) return @NAME@_ERROR_NULL;
    for (n = 0; n < @NAME@_SHAPES && found == NULL; n++) {
        if (sizes_of(n, shapes, sizes)) found = &kernels->variants[n];
    }
    if (found == NULL) return @NAME@_ERROR_SHAPE;
    if (found->chosen == NULL) return @NAME@_ERROR_CHIP;
    if (found->module == NULL) {
        void *module = NULL;
        code = load_module(kernels, found->chosen, &module);
        for (n = 0; n < found->chosen->kernel_count && code == 0; n++) {
            code = load_kernel(kernels, &found->chosen->kernels[n], module, &found->kernels[n]);
        }
        if (code == 0) found->module = module;
        else if (module != NULL) kernels->api.cuModuleUnload(module);
    }
    if (code == 0) *variant = found;
    return code;
}

size_t @name@_workspace_bytes(const @name@_variant *variant) {
    return variant == NULL ? 0 : (size_t)variant->chosen->workspace_bytes;
}

/* The tensor map of the array at an address: encoded anew where the address or the size is another one than in the launch before. */
static int encode(const driver *d, const tensor_map *map, unsigned long long address, const int64_t *sizes, encoded_map *encoded,
                  void **value) {
    static const unsigned ones[5] = {1, 1, 1, 1, 1};
    uint64_t extents[5], extent = map->dynamic < 0 ? 0 : (uint64_t)sizes[map->size];
    size_t past = (size_t)(uintptr_t)encoded->storage % TENSOR_MAP_ALIGN;
    int code;
    *value = encoded->storage + (TENSOR_MAP_ALIGN - past) % TENSOR_MAP_ALIGN;
    if (encoded->known && encoded->address == address && encoded->extent == extent) return 0;
    memcpy(extents, map->extents, sizeof extents);
    if (map->dynamic >= 0) extents[map->dynamic] = extent;
    code = d->cuTensorMapEncodeTiled(*value, map->data_type, map->rank, (void *)(uintptr_t)address, extents, map->strides,
                                     map->box, ones, 0, map->swizzle, map->promotion, 0);
    encoded->known = code == 0;
    encoded->address = address;
    encoded->extent = extent;
    return code;
}

/* The blocks with work at these sizes, of a kernel that is launched with at most `grid_x` in x. */
static void clip(const kernel *k, unsigned grid_x, const int64_t *sizes, unsigned *grid) {
    int n;
    memcpy(grid, k->grid, sizeof k->grid);
    grid[0] = grid_x;
    for (n = 0; n < 3; n++) {
        const follows *f = &k->clips[n];
        if (f->per > 0) {
            int64_t blocks = f->times * ((sizes[f->size] + f->per - 1) / f->per);
            if (blocks < grid[n]) grid[n] = blocks < 1 ? 1 : (unsigned)blocks;
        }
    }
}

static int launch_kernel(const driver *d, const unit *u, const kernel *k, loaded_kernel *loaded, void *stream, const int64_t *sizes,
                         const unsigned long long *arguments, unsigned long long workspace) {
    unsigned long long addresses[MOST_PARAMETERS];
    unsigned numbers[MOST_PARAMETERS], grid[3], n;
    void *values[MOST_PARAMETERS];
    for (n = 0; n < k->parameter_count; n++) {
        const parameter *p = &k->parameters[n];
        if (p->kind == OF_SIZES) {
            numbers[n] = (unsigned)(sizes[p->index] / ranges[u->shape][p->index].by);
            values[n] = &numbers[n];
            continue;
        }
        addresses[n] = p->kind == OF_WORKSPACE ? workspace + u->workspace[p->index] : arguments[p->index];
        values[n] = &addresses[n];
        if (p->map != NULL) {
            int code = encode(d, p->map, addresses[n], sizes, &loaded->maps[n], &values[n]);
            if (code != 0) return code;
        }
    }
    clip(k, loaded->grid_x, sizes, grid);
    if (loaded->extended) {
        launch_attribute attributes[2];
        launch_config config;
        configure(k, grid, stream, attributes, &config);
        return d->cuLaunchKernelEx(&config, loaded->function, values, NULL);
    }
    return d->cuLaunchKernel(loaded->function, grid[0], grid[1], grid[2], k->block[0], k->block[1], k->block[2], k->shared_bytes, stream,
                             values, NULL);
}

int @name@_launch(@name@_variant *variant, struct CUstream_st *stream@size_parameters@@parameters@, unsigned long long workspace) {
    unsigned long long arguments[@argument_room@];
    int64_t sizes[@size_room@] = {0};
    const unit *u;
    unsigned n;
    int size, code = 0;
    if (variant == NULL) return @NAME@_ERROR_NULL;
    u = variant->chosen;
@size_gather@    for (size = 0; size < SIZES; size++) {
        const size_range *range = &ranges[u->shape][size];
        if (sizes[size] < range->low || sizes[size] > range->high || sizes[size] % range->by != 0) return @NAME@_ERROR_SIZE;
    }
@gather@    for (n = 0; n < ARGUMENTS; n++) {
        if (arguments[n] == 0) return @NAME@_ERROR_NULL;
        if (arguments[n] % u->align[n] != 0) return @NAME@_ERROR_ALIGN;
    }
    if (u->workspace_bytes > 0 && (workspace == 0 || workspace % WORKSPACE_ALIGN != 0)) return @NAME@_ERROR_WORKSPACE;
    for (n = 0; n < u->kernel_count && code == 0; n++) {
        code = launch_kernel(&variant->owner->api, u, &u->kernels[n], &variant->kernels[n], stream, sizes, arguments, workspace);
    }
    return code;
}

int @name@_launch_ordered(@name@_variant *variant, struct CUstream_st *stream@size_parameters@@parameters@) {
    unsigned long long workspace = 0;
    const driver *d;
    size_t bytes;
    int code, freed;
    if (variant == NULL) return @NAME@_ERROR_NULL;
    d = &variant->owner->api;
    bytes = @name@_workspace_bytes(variant);
    if (bytes == 0) return @name@_launch(variant, stream@size_given@@given@, 0);
    if (d->cuMemAllocAsync == NULL || d->cuMemFreeAsync == NULL) return @NAME@_ERROR_POOLS;
    code = d->cuMemAllocAsync(&workspace, bytes, stream);
    if (code == RESULT_NOT_SUPPORTED) return @NAME@_ERROR_POOLS;
    if (code != 0) return code;
    code = @name@_launch(variant, stream@size_given@@given@, workspace);
    freed = d->cuMemFreeAsync(workspace, stream);
    return code != 0 ? code : freed;
}

int @name@_dispatch(@name@_kernels *kernels, const @name@_shapes *shapes, struct CUstream_st *stream@parameters@) {
    @name@_variant *variant = NULL;
    int code = @name@_find(kernels, shapes, &variant);
    return code != 0 ? code : @name@_launch_ordered(variant, stream@size_of_shapes@@given@);
}
