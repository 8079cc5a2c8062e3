/* vec_add.c: see vec_add.h. Written by warploom 0.1.0; write it again instead of editing it.

   The first part declares the driver's types, the second has tables of the compiled kernels, and the third has the functions that load
   and launch these kernels. The file is C99 and C++11. */

#include "vec_add.h"

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
    WORKSPACE_ALIGN = 256,
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
    unsigned shape;              /* its place in vec_add_all_shapes */
    int first_chip, last_chip;   /* 90 for a device of compute capability 9.0 */
    int first_cubin_chip, last_cubin_chip; /* the devices that run `cubin`; 0 if there is none */
    const char *const *cubin;    /* pieces of CUBIN_PIECE bytes, the last one shorter */
    size_t cubin_bytes;          /* of all pieces */
    const char *const *ptx;      /* lines */
    size_t ptx_bytes;            /* of all lines */
    uint64_t workspace_bytes;
    const uint64_t *workspace;   /* where each buffer begins in the workspace */
    unsigned align[3];           /* of the address of each argument */
    unsigned kernel_count;
    const kernel *kernels;
} unit;

const vec_add_shapes vec_add_all_shapes[VEC_ADD_SHAPES] = {
    {{1024}, {1024}, {1024}},
};

static const size_range ranges[VEC_ADD_SHAPES][1] = {
    {{1, 1, 1}},
};

/* vec_add for sm_80 */
static const char *const ptx_0[] = {
    "//\n",
    "// Generated by LLVM NVPTX Back-End\n",
    "//\n",
    "\n",
    ".version 7.0\n",
    ".target sm_80\n",
    ".address_size 64\n",
    "\n",
    "// kernel vec_add: grid 8 x 1 x 1, block 128 x 1 x 1, 0 bytes shared\n",
    "// func vec_add(A: global f32[1024], B: global f32[1024], C: global f32[1024])\n",
    "//   block C\n",
    "//     C[blockIdx.x*128 + threadIdx.x] = A[blockIdx.x*128 + threadIdx.x] + B[blockIdx.x*128 + threadIdx.x]\n",
    ".visible .entry vec_add(\n",
    "\t.param .u64 vec_add_param_0,\n",
    "\t.param .u64 vec_add_param_1,\n",
    "\t.param .u64 vec_add_param_2\n",
    ")\n",
    ".reqntid 128, 1, 1\n",
    "{\n",
    "\t.reg .b32 \t%r<5>;\n",
    "\t.reg .f32 \t%f<4>;\n",
    "\t.reg .b64 \t%rd<8>;\n",
    "\n",
    "\tld.param.u64 \t%rd1, [vec_add_param_0];\n",
    "\tld.param.u64 \t%rd2, [vec_add_param_1];\n",
    "\tmov.u32 \t%r1, %ctaid.x;\n",
    "\tld.param.u64 \t%rd3, [vec_add_param_2];\n",
    "\tmov.u32 \t%r2, %tid.x;\n",
    "\tshl.b32 \t%r3, %r1, 7;\n",
    "\tor.b32  \t%r4, %r3, %r2;\n",
    "\tmul.wide.u32 \t%rd4, %r4, 4;\n",
    "\tadd.s64 \t%rd5, %rd1, %rd4;\n",
    "\tld.global.nc.f32 \t%f1, [%rd5];\n",
    "\tadd.s64 \t%rd6, %rd2, %rd4;\n",
    "\tld.global.nc.f32 \t%f2, [%rd6];\n",
    "\tadd.rn.f32 \t%f3, %f1, %f2;\n",
    "\tadd.s64 \t%rd7, %rd3, %rd4;\n",
    "\tst.global.f32 \t[%rd7], %f3;\n",
    "\tret;\n",
    "}\n",
};

static const parameter parameters_0_0[] = {
    {OF_ARGUMENTS, 0, NULL},
    {OF_ARGUMENTS, 1, NULL},
    {OF_ARGUMENTS, 2, NULL},
};
static const uint64_t workspace_0[] = {0};
static const kernel kernels_0[] = {
    {"vec_add", {8, 1, 1}, {128, 1, 1}, {1, 1, 1}, 0, 0, 0, 3, parameters_0_0, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
};

static const unit units[] = {
    /* sm_80 */
    {0, 80, 9999, 0, 0, NULL, 0, ptx_0, 1010, 0, workspace_0, {16, 16, 16}, 1, kernels_0},
};


enum { CUBIN_PIECE = 1000, ARGUMENTS = 3, SIZES = 0, UNITS = 1, MOST_KERNELS = 1, MOST_PARAMETERS = 3 };

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

struct vec_add_variant {
    vec_add_kernels *owner;
    const unit *chosen; /* null if no unit of these shapes runs on the device */
    void *module;       /* null until it is found for the first time */
    loaded_kernel kernels[MOST_KERNELS];
};

struct vec_add_kernels {
    driver api;
    int chip;
    int multiprocessors;
    vec_add_variant variants[VEC_ADD_SHAPES];
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
    if (library == NULL) return VEC_ADD_ERROR_DRIVER;
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
    return complete ? 0 : VEC_ADD_ERROR_DRIVER;
}

const char *vec_add_error(int code) {
    driver d;
    const char *name = NULL;
    switch (code) {
    case 0: return "no error";
    case VEC_ADD_ERROR_SHAPE: return "vec_add: there are no kernels for these shapes; there are kernels for a [1024], b [1024], c [1024]";
    case VEC_ADD_ERROR_CHIP: return "vec_add: there are no kernels for this device, or none of these shapes; there are kernels for sm_80";
    case VEC_ADD_ERROR_ALIGN: return "vec_add: an address is not a multiple of the alignment that vec_add.h says";
    case VEC_ADD_ERROR_WORKSPACE: return "vec_add: the workspace is missing, or not at a multiple of 256 bytes";
    case VEC_ADD_ERROR_FIT: return "vec_add: not one block or cluster of a kernel fits on the device";
    case VEC_ADD_ERROR_DRIVER: return "vec_add: there is no CUDA driver, or it is older than the kernels need (CUDA 11.8 for clusters, 12.0 for tensor maps)";
    case VEC_ADD_ERROR_MEMORY: return "vec_add: the host has no memory left";
    case VEC_ADD_ERROR_NULL: return "vec_add: a pointer is null";
    case VEC_ADD_ERROR_SIZE: return "vec_add: a size has a value that these kernels do not take; there are kernels for a [1024], b [1024], c [1024]";
    case VEC_ADD_ERROR_POOLS: return "vec_add: the device or its driver has no memory pools, in which a stream allocates: launch with workspace of your own";
    default: break;
    }
    memset(&d, 0, sizeof d);
    if (code > 0 && open_driver(&d) == 0 && d.cuGetErrorName(code, &name) == 0 && name != NULL) return name;
    return "vec_add: a code that the driver has no name for";
}

int vec_add_load(vec_add_kernels **kernels) {
    vec_add_kernels *made;
    int code, device = 0, major = 0, minor = 0, usable = 0;
    unsigned n;
    if (kernels == NULL) return VEC_ADD_ERROR_NULL;
    *kernels = NULL;
    made = (vec_add_kernels *)calloc(1, sizeof *made);
    if (made == NULL) return VEC_ADD_ERROR_MEMORY;
    code = open_driver(&made->api);
    if (code == 0) code = made->api.cuCtxGetDevice(&device);
    if (code == 0) code = made->api.cuDeviceGetAttribute(&major, DEVICE_COMPUTE_CAPABILITY_MAJOR, device);
    if (code == 0) code = made->api.cuDeviceGetAttribute(&minor, DEVICE_COMPUTE_CAPABILITY_MINOR, device);
    if (code == 0) code = made->api.cuDeviceGetAttribute(&made->multiprocessors, DEVICE_MULTIPROCESSOR_COUNT, device);
    made->chip = 10 * major + minor;
    /* Units of one shape follow one another, the best one first. */
    for (n = 0; n < UNITS && code == 0; n++) {
        vec_add_variant *variant = &made->variants[units[n].shape];
        variant->owner = made;
        if (variant->chosen == NULL && units[n].first_chip <= made->chip && made->chip <= units[n].last_chip) {
            variant->chosen = &units[n];
            usable = 1;
        }
    }
    if (code == 0 && !usable) code = VEC_ADD_ERROR_CHIP;
    if (code != 0) {
        free(made);
        return code;
    }
    *kernels = made;
    return 0;
}

void vec_add_unload(vec_add_kernels *kernels) {
    unsigned n;
    if (kernels == NULL) return;
    for (n = 0; n < VEC_ADD_SHAPES; n++) {
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
static int resident_grid(const vec_add_kernels *kernels, const kernel *k, loaded_kernel *loaded) {
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
    if (count < 1) return VEC_ADD_ERROR_FIT;
    if (resident < loaded->grid_x) loaded->grid_x = resident;
    return 0;
}

static int load_kernel(const vec_add_kernels *kernels, const kernel *k, void *module, loaded_kernel *loaded) {
    const driver *d = &kernels->api;
    unsigned n, cluster = k->cluster[0] * k->cluster[1] * k->cluster[2];
    int code = d->cuModuleGetFunction(&loaded->function, module, k->entry);
    loaded->grid_x = k->grid[0];
    /* A driver that cannot launch dependent kernels early runs them one after the other. */
    loaded->extended = cluster > 1 || (k->dependent && d->cuLaunchKernelEx != NULL);
    if (cluster > 1 && (d->cuLaunchKernelEx == NULL || d->cuOccupancyMaxActiveClusters == NULL)) return VEC_ADD_ERROR_DRIVER;
    for (n = 0; n < k->parameter_count; n++) {
        if (k->parameters[n].map != NULL && d->cuTensorMapEncodeTiled == NULL) return VEC_ADD_ERROR_DRIVER;
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
static int load_module(const vec_add_kernels *kernels, const unit *u, void **module) {
    int code, binary = u->first_cubin_chip <= kernels->chip && kernels->chip <= u->last_cubin_chip;
    size_t bytes = binary ? u->cubin_bytes : u->ptx_bytes, done = 0;
    char *image = (char *)malloc(bytes + 1);
    unsigned n;
    if (image == NULL) return VEC_ADD_ERROR_MEMORY;
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
static int sizes_of(unsigned at, const vec_add_shapes *given, int64_t *sizes) {
    vec_add_shapes known = vec_add_all_shapes[at];
    int n;
    (void)sizes;
    for (n = 0; n < SIZES; n++) {
        const size_range *range = &ranges[at][n];
        if (sizes[n] < range->low || sizes[n] > range->high || sizes[n] % range->by != 0) return 0;
    }
    return memcmp(&known, given, sizeof known) == 0;
}

int vec_add_find(vec_add_kernels *kernels, const vec_add_shapes *shapes, vec_add_variant **variant) {
    vec_add_variant *found = NULL;
    int64_t sizes[1] = {0};
    unsigned n;
    int code = 0;
    if (variant != NULL) *variant = NULL;
    if (kernels == NULL || shapes == NULL || variant == NULL) return VEC_ADD_ERROR_NULL;
    for (n = 0; n < VEC_ADD_SHAPES && found == NULL; n++) {
        if (sizes_of(n, shapes, sizes)) found = &kernels->variants[n];
    }
    if (found == NULL) return VEC_ADD_ERROR_SHAPE;
    if (found->chosen == NULL) return VEC_ADD_ERROR_CHIP;
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

size_t vec_add_workspace_bytes(const vec_add_variant *variant) {
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

int vec_add_launch(vec_add_variant *variant, struct CUstream_st *stream,
        unsigned long long a,
        unsigned long long b,
        unsigned long long c, unsigned long long workspace) {
    unsigned long long arguments[3];
    int64_t sizes[1] = {0};
    const unit *u;
    unsigned n;
    int size, code = 0;
    if (variant == NULL) return VEC_ADD_ERROR_NULL;
    u = variant->chosen;
    for (size = 0; size < SIZES; size++) {
        const size_range *range = &ranges[u->shape][size];
        if (sizes[size] < range->low || sizes[size] > range->high || sizes[size] % range->by != 0) return VEC_ADD_ERROR_SIZE;
    }
    arguments[0] = a;
    arguments[1] = b;
    arguments[2] = c;
    for (n = 0; n < ARGUMENTS; n++) {
        if (arguments[n] == 0) return VEC_ADD_ERROR_NULL;
        if (arguments[n] % u->align[n] != 0) return VEC_ADD_ERROR_ALIGN;
    }
    if (u->workspace_bytes > 0 && (workspace == 0 || workspace % WORKSPACE_ALIGN != 0)) return VEC_ADD_ERROR_WORKSPACE;
    for (n = 0; n < u->kernel_count && code == 0; n++) {
        code = launch_kernel(&variant->owner->api, u, &u->kernels[n], &variant->kernels[n], stream, sizes, arguments, workspace);
    }
    return code;
}

int vec_add_launch_ordered(vec_add_variant *variant, struct CUstream_st *stream,
        unsigned long long a,
        unsigned long long b,
        unsigned long long c) {
    unsigned long long workspace = 0;
    const driver *d;
    size_t bytes;
    int code, freed;
    if (variant == NULL) return VEC_ADD_ERROR_NULL;
    d = &variant->owner->api;
    bytes = vec_add_workspace_bytes(variant);
    if (bytes == 0) return vec_add_launch(variant, stream, a, b, c, 0);
    if (d->cuMemAllocAsync == NULL || d->cuMemFreeAsync == NULL) return VEC_ADD_ERROR_POOLS;
    code = d->cuMemAllocAsync(&workspace, bytes, stream);
    if (code == RESULT_NOT_SUPPORTED) return VEC_ADD_ERROR_POOLS;
    if (code != 0) return code;
    code = vec_add_launch(variant, stream, a, b, c, workspace);
    freed = d->cuMemFreeAsync(workspace, stream);
    return code != 0 ? code : freed;
}

int vec_add_dispatch(vec_add_kernels *kernels, const vec_add_shapes *shapes, struct CUstream_st *stream,
        unsigned long long a,
        unsigned long long b,
        unsigned long long c) {
    vec_add_variant *variant = NULL;
    int code = vec_add_find(kernels, shapes, &variant);
    return code != 0 ? code : vec_add_launch_ordered(variant, stream, a, b, c);
}
