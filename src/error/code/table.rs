//! Every code, by what it is about: the variant, its word after the dot, what is wrong, and what the user should try.

/// The remedy of a code with which warploom itself is at fault wherever an error has it.
pub(super) const REPORT: &str = "Report it with the program and the steps.";

/// The remedy of a code of a run whose fault can be the program's, too: the error says whether the naive program fails.
const NAIVE: &str =
    "Correct the program if the naive program fails, too. Otherwise report it with the program and the steps.";

codes! {
    Admit "admit" "What the chip cannot run (`lower`'s first pass)." {
        AdmitBlockDim "block_dim" "A dimension of the block is larger than the chip allows."
            "Bind fewer iterations to this threadIdx axis: split the loop with a smaller factor."
        AdmitByte "byte" "A thread writes a part of a byte, which another thread could write at the same time."
            "Vectorize a loop over the adjacent elements of a byte, so that a thread writes whole bytes."
        AdmitCluster "cluster" "The chip has no clusters, or none of this size."
            "On a chip without clusters, bind the loop to blockIdx.y. Otherwise bind fewer iterations to cluster."
        AdmitCopy "copy" "The chip has no instruction for this kind of asynchronous copy."
            "Use `copy_with STAGE sync`: threads copy through registers, in a pipeline too."
        AdmitGridDependency "grid_dependency" "The chip has no programmatic dependent launch."
            "Remove `grid_dependency=` from the `launch` step."
        AdmitGridDim "grid_dim" "A dimension of the grid is larger than the chip allows."
            "Bind the longest loop over blocks to blockIdx.x, which allows the most iterations."
        AdmitInstruction "instruction" "The chip does not have the instruction that a step names."
            "Choose from `warploom explain --instructions --target CHIP`, or remove the step to get ordinary code."
        AdmitL2Prefetch "l2_prefetch" "The chip cannot prefetch into L2."
            "Remove `l2_prefetch=` from the `launch` step."
        AdmitPlacement "placement" "This version does not lower a placement of the schedule."
            "Remove the steps that the error names: the program is then the same in ordinary code."
        AdmitRegisters "registers" "A local buffer has many more elements than a thread has registers."
            "Use smaller tiles for a thread."
        AdmitRole "role" "The chip lacks what a warp-specialized role needs."
            "Remove `regs=` if the error names it. Otherwise remove the `specialize` step."
        AdmitRoles "roles" "The kernel has more warp-specialized roles than it has named barriers for."
            "Let one role fill several staged buffers, such as `specialize S T -> load warps=1`."
        AdmitRow "row" "The rows of a buffer with elements below one byte do not end at whole bytes."
            "Make the last extent a multiple of the elements in a byte, and pad the rows with zeros."
        AdmitShared "shared" "A block needs more shared memory than the chip allows."
            "Use smaller tiles, or place shared buffers under a deeper loop with `compute_at`."
        AdmitThreads "threads" "A block has more threads than the chip allows."
            "Split the loops that are bound to threadIdx, warp or warpgroup with smaller factors."
    }
    Array "array" "Host arrays." {
        ArrayAlign "align" "The bytes of an array are not aligned to the type that is asked for."
            "Copy the elements with `Array::to_vec`."
        ArrayFile "file" "A file of an array cannot be read or written."
            "Name a .npy or .safetensors file of a type that its format has, in a folder that exists."
        ArrayMemory "memory" "The host has no memory for an array."
            "Use smaller extents, such as `--size 256` where the program has sizes."
        ArrayRange "range" "A range of values is empty, or a magnitude is negative."
            "Give a range that holds an integer, or a magnitude of at least 0."
        ArraySize "size" "A shape is too large, or the data have another size than the shape."
            "Use a smaller shape, or give as many elements as the shape has."
        ArrayThread "thread" "A thread that filled an array panicked." REPORT
        ArrayType "type" "The array holds another type than the one that is asked for."
            "Ask for the type that the array holds, or convert the array. `Array::get` reads an element of any type as f64."
        ArrayValues "values" "A value is outside the range that the program states for the input."
            "Change the element that the error names, or state a wider range for the input in the program."
        ArrayWords "words" "The array has no form of whole 32-bit words, or the words or bytes have another count."
            "Give as many bytes or words as the error names. Words hold 4-bit or 1-bit elements in rows of whole words."
    }
    Artifact "artifact" "Compiled kernels on disk." {
        ArtifactChoice "choice" "An artefact has no program of this name, or no variant for the device or the arrays."
            "Name a program and arrays that `warploom inspect PATH` lists, choose by the label, or build for more chips."
        ArtifactJson "json" "The manifest cannot be printed as JSON." REPORT
        ArtifactLauncher "launcher" "No launcher can be written: its name is no identifier, or its units are not of one program or do not fit each other."
            "Use a free lower-case name, and write a launcher for each program. Build ranges that follow one another."
        ArtifactRead "read" "The path holds no artefact of this version, or a file of it has changed since it was written."
            "Build the artefact again with `warploom build FILE -o PATH`, or name a path that holds one."
        ArtifactWrite "write" "The files of an artefact cannot be written."
            "Name a file in a folder that takes new files, such as `kernels.warploom`."
    }
    Buffer "buffer" "Buffers of a GPU." {
        BufferWrite "write" "An array cannot fill a device buffer: it has another type, shape or size."
            "Give an array of the buffer's type and shape."
    }
    Build "build" "Compiling schedules into an artefact." {
        BuildFile "file" "A file of a schedule cannot be read."
            "Name a file that exists. Cargo runs a build script in the folder of Cargo.toml."
        BuildScript "script" "The build script's helper runs outside of a build script."
            "Call `build::script` in the main function of build.rs, and name build.rs in Cargo.toml."
        BuildThread "thread" "A thread that compiled a variant panicked." REPORT
    }
    Cache "cache" "Compiled programs that are kept between processes." {
        CacheKey "key" "A key of the cache is no digest." REPORT
        CacheOpen "open" "The folder of the cache cannot be made or read, or others may write into it."
            "Set `WARPLOOM_CACHE` to a folder into which you alone can write."
    }
    Cli "cli" "The command line." {
        CliArtifact "artifact" "Options of `build` do not fit each other or repeat a variant, or an option is for a schedule and the file is an artefact."
            "Remove the option or the repeated variant. `warploom inspect PATH --variant 1 --emit schedule` prints a schedule."
        CliBlock "block" "No kernel has the block or the thread that an option names."
            "Name a block inside one of the grids that the error lists, such as `--block 0`."
        CliDevice "device" "An option names no device, or the command needs another one."
            "Name a GPU that `warploom doctor` lists, or use none: `--device sim`, and `--device none` for `tune`."
        CliDtype "dtype" "An option names no type of data, or types that no GEMM has."
            "Write types as `f16`, `f16>f32>f16` or `u8*s8>s32`, and `--weights s4/128` for groups of weights."
        CliExamples "examples" "The folder of examples cannot be read."
            "Start `warploom bench --examples` in the source tree."
        CliFile "file" "A file cannot be read or written."
            "Name a file that can be read or written. A schedule is UTF-8 text of at most 1 MiB."
        CliGemm "gemm" "`--gemm` names no sizes of a GEMM, or a range of M that the command does not take."
            "Write `--gemm 1024x512x2048`, with a batch `--gemm 8x64x64x64`, and a range of M only where the command takes it."
        CliHtml "html" "The page of a kernel cannot be written."
            "Name a file in a folder that exists, such as `--html kernel.html`."
        CliInput "input" "The command names no schedule, or an option that the tuner does not take."
            "Name a .loom file, or a product such as `--gemm 1024x512x2048`. `warploom explain --primitives` lists the steps."
        CliInstruction "instruction" "No instruction has the name or the prefix that is asked for."
            "Choose a prefix from `warploom explain --instructions`, which lists the instructions of all chips."
        CliJson "json" "A result cannot be printed as JSON." REPORT
        CliLaunch "launch" "The command launches kernels and there is no GPU to run them, or a process that the command times fails."
            "Use `--device 0` on a host with a GPU."
        CliLayout "layout" "A layout is none of NN, NT, TN and TT."
            "Write NN, NT, TN or TT."
        CliLevel "level" "`--level`, `--block` or `--thread` is given without the option that it belongs to."
            "Add `--print` or `--step`. With `--block` or `--thread`, add `--level lowered`, too."
        CliLines "lines" "`--lines` is given without a dump or a run that it could add lines to, or the current folder is unknown."
            "Add `--emit ptx` or `--out DIR` to a dump, and `--device 0` to a run. Start in a folder that exists."
        CliMan "man" "The manual page cannot be printed." REPORT
        CliMemory "memory" "The arrays of the program do not fit into the memory of the host."
            "Use smaller extents in the program's text, or `--size` where the program has sizes."
        CliMutate "mutate" "No mutant has the number or the words that are asked for."
            "Choose from the mutants that `--mutate list` prints."
        CliNew "new" "The name of a new crate is none, its folder exists, or `--path` names no checkout of warploom."
            "Name a new folder that can be the name of a crate, such as `warploom new my-kernels`. Name a checkout with `--path`."
        CliParameter "parameter" "An option names no parameter of the program, or one parameter twice, or the file does not fit the parameter."
            "Name each input or output once, with a file of its type and shape. No file holds an array with strides."
        CliPass "pass" "`--passes` names no pass, or the dump does not show passes."
            "Name one of the passes that the error lists, and add `--emit lowered`."
        CliPlot "plot" "The measurements make no plot, or the plot cannot be written."
            "Measure on a GPU with `--device 0`, and name a file in a folder that exists."
        CliPrint "print" "`--print` names no elements of a buffer of the program."
            "Name elements inside the shape of a buffer that statements write, such as `--print T[3]`."
        CliRandom "random" "The file of rows of `--random` is of another run, or cannot be read."
            "Name another file with `--out`, or remove the old file."
        CliRows "rows" "`--rows` comes without sizes that it can use."
            "Write for example `--rows softmax --size 8192x4096 --dtype f16`."
        CliStep "step" "`--step` and the schedule would both be read from standard input."
            "Write the schedule to a file, and name the file."
        CliSuite "suite" "A line of a suite is not of its form, or no line is chosen."
            "Write each line as in `f16 NT 4096 >= 0.65`, and choose lines by their words, such as `--only f16`."
        CliSvg "svg" "The picture of a schedule cannot be written."
            "Name a file in a folder that exists, such as `--svg kernel.svg`."
        CliTarget "target" "`--target` names no chip."
            "Name one of the chips that the error lists, such as `--target sm_90a`."
        CliValue "value" "`--set` gives no value of a scalar input or a dynamic size, or `--ranges` or `--fixed` has no dynamic size."
            "Set each scalar input or dynamic size once, as in `--set M=64`. Use `--ranges` and `--fixed` with a dynamic size alone."
        CliVariant "variant" "The artefact has no variant of the label or number that an option gives."
            "Name an artefact, and with `--variant` a label or a number that `warploom inspect PATH` lists."
        CliWrite "write" "A report or a file of a new crate cannot be written."
            "Name a path in a folder that takes new files."
    }
    Codegen "codegen" "Translation to PTX." {
        CodegenLlvm "llvm" "The translation of a lowered program, or LLVM itself, fails." REPORT
        CodegenParams "params" "A kernel takes a buffer that the program does not have." REPORT
        CodegenSize "size" "A lowered program that no pass has made is larger than the compiler takes." REPORT
        CodegenVerify "verify" "LLVM's verifier refuses the module." REPORT
    }
    Device "device" "Properties of a GPU." {
        DeviceTarget "target" "The GPU is of a compute capability that has no target."
            "Use a newer GPU, or run on the simulator: `--device sim`."
    }
    Dlpack "dlpack" "Arrays of other libraries." {
        DlpackDevice "device" "The array is not in memory of the device."
            "Copy the array to the device first."
        DlpackReadOnly "read_only" "An array that came as read-only would be written, or lose the mark."
            "Give an array that may be written, or hand the array over as a DLManagedTensorVersioned."
        DlpackShape "shape" "The shape or the address of an array cannot be."
            "Give an array with a shape of extents from 0 on, and an address of memory that holds all elements."
        DlpackStrides "strides" "The strides of an array are not those of a packed one."
            "Make the array contiguous, or hand over the array that it is a view of."
        DlpackType "type" "The array has a type of data that warploom has not."
            "Convert the array to a type of warploom, with elements below one byte packed."
        DlpackVersion "version" "The array is one of another major version of DLPack."
            "Ask the producer for an array of DLPack 1 (`max_version` of `__dlpack__`)."
    }
    Driver "driver" "Answers of the CUDA driver." {
        DriverMade "made" "The driver reports success and gives no value, or one that it cannot give." REPORT
    }
    Error "error" "Errors themselves." {
        ErrorCode "code" "The text is not the code of an error."
            "Copy the code from the brackets of the error. `warploom explain --codes` lists the codes."
    }
    Gemm "gemm" "Recommended schedules of GEMMs." {
        GemmKind "kind" "No recipe of the kind fits the GEMM on the chip."
            "Use another kind, such as `--kind simt`, or write the steps yourself."
        GemmLayout "layout" "No layout of GEMMs describes how a product reads its operands or writes its result."
            "Write the product as `C[i, j] f32 = sum(k) A[i, k]*B[k, j]`, with adjacent elements along the last dimension."
        GemmProgram "program" "The program has no matrix product that recipes schedule, or no recipe has what an option asks for."
            "Write one matrix product into a program, and `recommend` before other steps. Remove `--ranges` or `--no-workspace` if refused."
        GemmRecipes "recipes" "No recipe has steps for the GEMM." REPORT
        GemmSteps "steps" "The steps that a recipe recommends are not well formed." REPORT
        GemmWeights "weights" "No product of quantised weights has these types or groups."
            "Use f16 or bf16 with weights of s4, u4, s8, u8 or e4m3, in groups that the error allows. Give `qweight` as 32-bit integers."
    }
    Host "host" "Driver, devices and libraries of the host." {
        HostCublas "cublas" "A call of cuBLAS fails."
            "Free device memory if the status is ALLOC_FAILED. Otherwise install a newer cuBLAS, or name one with `WARPLOOM_CUBLAS`."
        HostDriverLoaded "driver_loaded" "Another driver is loaded already."
            "Choose the driver before the first use of a device."
        HostDriverTooOld "driver_too_old" "The NVIDIA driver is too old."
            "Update the NVIDIA driver to one for the CUDA version that the error names."
        HostLibrary "library" "A shared library, or a function of it, cannot be loaded."
            "Install a version of the library that has the function. `warploom doctor` says which libraries are found."
        HostNoBaseline "no_baseline" "cuBLAS has no such GEMM."
            "Measure types that cuBLAS multiplies, such as `--dtype f16`."
        HostNoCublas "no_cublas" "cuBLAS is not installed."
            "Install libcublas with the CUDA toolkit or Python's nvidia-cublas, or set `WARPLOOM_CUBLAS` to its file."
        HostNoDevice "no_device" "There is no GPU, or none of this number."
            "Choose a device that `warploom doctor` lists, or run on the simulator: `--device sim`."
        HostNoDriver "no_driver" "No NVIDIA driver is found."
            "Install the NVIDIA driver, which has the file libcuda.so.1, or run on the simulator: `--device sim`."
        HostNvml "nvml" "A call of NVML fails."
            "Run `nvidia-smi`, which uses NVML, too. Update the NVIDIA driver if `nvidia-smi` fails."
    }
    Intrin "intrin" "Rows of instructions." {
        IntrinMeaning "meaning" "The meaning of an instruction's row is not a program." REPORT
    }
    Launch "launch" "Loading and launching kernels." {
        LaunchAlign "align" "The address of an argument is not aligned as the kernel needs it."
            "Give an address at a multiple of the bytes that the error names."
        LaunchBare "bare" "The program has no kernel to time."
            "Time a program that has a kernel."
        LaunchCluster "cluster" "The grid is not a whole number of clusters, or the device has no clusters of this size."
            "Remove `bind LOOP cluster` for a device without clusters. Otherwise report the error with the program and the steps."
        LaunchCount "count" "A launch has another number of arguments than the program has parameters."
            "Give one argument for each parameter of the program, in the order of the parameters."
        LaunchDevice "device" "An argument is on another device than the program."
            "Copy the array to the device of the program, or load the program on the device of the array."
        LaunchDtype "dtype" "An argument has another type of data than the parameter."
            "Convert the array to the type of the parameter."
        LaunchExtent "extent" "A kernel would be launched with an extent of zero." REPORT
        LaunchFit "fit" "Not one block, or not one cluster, of a kernel fits on the device."
            "Use smaller tiles, fewer stages, fewer threads a block or a smaller cluster."
        LaunchOverlap "overlap" "An argument that is written shares bytes with another argument."
            "Give every argument and the workspace a buffer of their own."
        LaunchParams "params" "A kernel takes a parameter that the program does not have." REPORT
        LaunchShape "shape" "An argument has another shape than the parameter."
            "Give an array of the shape that the error names."
        LaunchShared "shared" "A kernel needs more shared memory than the device gives to a block."
            "Use smaller tiles or fewer stages."
        LaunchSize "size" "A buffer is smaller than the parameter with the gaps of its strides."
            "Allocate the gaps of the parameter's strides, too."
        LaunchTarget "target" "The program is compiled for another chip than the device."
            "Compile for the chip of the device, which the error names."
        LaunchText "text" "The PTX or the name of a kernel holds a zero byte." REPORT
        LaunchThreads "threads" "A kernel has more threads in a block than the device can run."
            "Use fewer threads a block, or smaller register tiles."
        LaunchWorkspace "workspace" "Workspace of the caller's is missing, too small, or not aligned."
            "Give aligned buffers as `Program::workspace_bytes` says, or let `Device::load` allocate the workspace."
        LaunchTimeout "timeout" "A kernel does not end within the time that it has."
            "Allow a slow kernel more time with `--patience`. To find a deadlock, run on the simulator: `--device sim`."
    }
    Loom "loom" "The text of a schedule." {
        LoomFormat "format" "Formatting would change what the text means." REPORT
        LoomKnobs "knobs" "The text has knobs, sets of choices for the tuner: it is a space of schedules, not one."
            "Run `warploom tune FILE`, which tries the choices and prints the best schedule."
        LoomRecommend "recommend" "A line `recommend` has more words."
            "Write `recommend` alone on its line."
        LoomResize "resize" "The program has no sizes to change: its text fixes them."
            "Change the extents in the text, or begin with a builder line such as `gemm 64x64x64 f32 NN`."
        LoomSize "size" "The text is longer than a schedule may be."
            "Shorten the text to at most 1 MiB."
        LoomTarget "target" "No line names the target, or the line is wrong."
            "Write one line such as `target sm_90a` between the program and the steps."
    }
    Lower "lower" "The passes." {
        LowerBind "bind" "Pass `bind` finds what it cannot translate." REPORT
        LowerBulk "bulk" "Pass `bulk` finds a TMA copy that it cannot write." REPORT
        LowerBulkAlign "bulk_align" "A TMA box begins in shared memory at no multiple of 128 bytes, or in a row of its array at no multiple of 16 bytes."
            "Make each TMA box a multiple of 128 bytes that begins at a multiple of 16 bytes of a row, or use `copy_with STAGE sync`."
        LowerBulkCondition "bulk_condition" "A condition around a TMA copy is not a bound of its array."
            "Choose factors that divide the extents, or use `copy_with STAGE sync`."
        LowerBulkCopy "bulk_copy" "A block with TMA copies stores something else than a copy."
            "Compute in another block, so that the block only copies, or use `copy_with STAGE sync`."
        LowerBulkLevels "bulk_levels" "Each warpgroup would load a TMA box of its own, and the block waits for one box."
            "Bind the loop of the warpgroups before `compute_at STAGE LOOP`, or use `copy_with STAGE sync`."
        LowerBulkMulticast "bulk_multicast" "The blocks of a cluster cannot divide a multicast copy."
            "Use a box whose rows the blocks of the cluster divide, or remove `multicast=`."
        LowerBulkOrder "bulk_order" "Something else touches the memory of a TMA copy, and nothing orders the two."
            "Read or write the array in another kernel and store each box once, or use `copy_with STAGE sync`."
        LowerBulkRows "bulk_rows" "The rows in shared memory are not those of the TMA box."
            "Lay the staged buffer out like the array, without padding or transposition, or use `copy_with STAGE sync`."
        LowerBulkRun "bulk_run" "A TMA copy is awaited under a condition that may differ from that of the copy."
            "Move the staged buffer out of the loop that decides the condition."
        LowerBulkSize "bulk_size" "A TMA box has no size that the hardware takes."
            "Give the buffers constant sizes and the staged buffer space for whole boxes, or use `copy_with STAGE sync`."
        LowerBulkSwizzle "bulk_swizzle" "The staged buffer has a swizzle that no TMA box has."
            "Swizzle by a width that divides the rows, such as `swizzle STAGE 64`, or use `copy_with STAGE sync`."
        LowerCluster "cluster" "A block of a cluster reads what is in the shared memory of another block."
            "Make the number of the reading block the first dimension with `transform_layout`, and bind its loop to cluster."
        LowerClusterReduction "cluster_reduction" "A reduction over the blocks of a cluster is under a condition."
            "Choose factors that divide the extents of the loops around the reduction."
        LowerCompact "compact" "Pass `compact` finds a region that is not of its buffer." REPORT
        LowerConcurrent "concurrent" "A concurrent kernel conflicts with a preceding kernel, or no preceding kernel releases it."
            "Add `grid_dependency=1` to the `launch` step, or remove `concurrent=1`."
        LowerCopies "copies" "Pass `copies` finds a block that is not a copy." REPORT
        LowerCopySize "copy_size" "A thread of `cp.async` copies another size than 4, 8 or 16 bytes."
            "Vectorize the innermost loop of the copy to 4, 8 or 16 bytes, or use `copy_with STAGE sync`."
        LowerCopySource "copy_source" "The kernel writes what `cp.async` reads."
            "Write the array in another kernel, or use `copy_with STAGE sync`."
        LowerDistribute "distribute" "The elements of a fragment cannot be distributed over the lanes of a warp."
            "Give each statement a nest over whole tiles of its fragment, or pass the values through shared memory."
        LowerExtent "extent" "A loop over blocks or threads has no positive 32-bit constant as its extent."
            "Bind a loop whose extent is a positive constant below 2^32."
        LowerExtents "extents" "An axis has two extents in one kernel."
            "Split the loop so that its bound part has the extent of the other loop."
        LowerFlatten "flatten" "Pass `flatten` finds a buffer or a loop without a constant size." REPORT
        LowerFragment "fragment" "A fragment has no layout that every instruction and statement on it agrees with."
            "Tensorize the nests of the fragment with instructions whose layouts agree, over whole tiles, or pass values through shared memory."
        LowerFragments "fragments" "Pass `fragments` finds a nest that is not that of its instruction." REPORT
        LowerHandover "handover" "A buffer of one kernel is used by several kernels."
            "Join the nests with `compute_at` or `reverse_compute_at`, or keep the buffer global."
        LowerL2Prefetch "l2_prefetch" "A kernel with `l2_prefetch` reads no array that it does not write."
            "Remove `l2_prefetch=1` from the `launch` step."
        LowerLevels "levels" "The lanes of a warp would run a block together that mentions one thread, or warps and threads at once."
            "Leave the loops of a fragment or an instruction unbound, or bind the loops of the block to threads alone."
        LowerLocalByThread "local_by_thread" "A local buffer is indexed by a thread."
            "Use `set_scope BUFFER shared`, or `compute_at` under the loop that is bound to threads."
        LowerMulticast "multicast" "The loop of `multicast=` is not bound to the cluster."
            "Bind the loop to cluster, or remove `multicast=`."
        LowerOperand "operand" "An operand of an instruction is in a memory that the instruction does not take."
            "Copy the operand into a memory that the instruction takes, with `cache_read` or `cache_write`."
        LowerOperations "operations" "A kernel whose loops are written out has more operations than the compiler takes."
            "Unroll fewer loops or the inner part of a split loop, or use `annotate LOOP unroll_limit 1`."
        LowerOrder "order" "Pass `order` finds a load that no wait covers." REPORT
        LowerPersistent "persistent" "A persistent loop is not where it can be."
            "Make the persistent loop the only loop over blocks and the outermost one with `fuse` and `reorder`, or drop `persistent`."
        LowerPingpong "pingpong" "No role fills the staged buffers of a ping-pong loop, or its own threads fill one."
            "Specialize every staged buffer inside the loop, or use `bind LOOP warpgroup` without `pingpong`."
        LowerPipeline "pipeline" "A loop cannot be pipelined as its step says."
            "Copy at the start of the loop by one kind of copy, use fewer groups in `in_flight=`, or remove the `pipeline` step."
        LowerPlan "plan" "Pass `plan` finds a shared buffer without a constant size." REPORT
        LowerPromise "promise" "A pass does not keep its promise." REPORT
        LowerRace "race" "Threads access the same element, and nothing orders them."
            "Give each thread its own buffer (`set_scope BUFFER local`), or leave the loop unbound. `--allow-tested` allows undecided claims."
        LowerReduction "reduction" "A reduction over threads is not of a form that threads can combine."
            "Bind reduce loops alone, to threadIdx or cluster, and split or fuse them apart from spatial loops. Or leave them serial."
        LowerRegisters "registers" "The registers that roles set do not add up."
            "State `regs=24` to `regs=40` for a producer and multiples of 4 warps, or remove `regs=`."
        LowerRole "role" "A warp-specialized role cannot run as its step says."
            "Bind no more threads than the role has, and specialize the other buffer that the error names. Or remove the `specialize` step."
        LowerRoles "roles" "Pass `roles` finds a role that the kernel does not have." REPORT
        LowerSend "send" "An asynchronous store to another block is where the kernel cannot wait for it." REPORT
        LowerShadow "shadow" "Two loops, one inside the other, are bound to one axis."
            "Compute the staged buffer outside the outer loop, or bind the inner loop to another axis."
        LowerShared "shared" "The shared memory of a kernel is beyond 32-bit addresses."
            "Place the shared buffers under a deeper loop with `compute_at`, so that each holds one tile only."
        LowerSize "size" "A buffer has no constant size, or too large a one."
            "Give the buffer a constant shape of fewer than 2^63 elements."
        LowerSwizzle "swizzle" "The tiles of a swizzled buffer are not whole panels of the swizzle."
            "Swizzle by another width, or use tiles whose rows are whole panels."
        LowerTile "tile" "A tile of an instruction is not laid out as the instruction takes it."
            "Split the loops so that tiles of the instruction divide them. Lay the operand out with `swizzle` or `storage_align`."
        LowerUnroll "unroll" "Unrolled, a kernel has more statements than the compiler takes."
            "Unroll fewer loops or the inner part of a split loop, or keep the indexed buffer in shared memory."
        LowerUnrollLimit "unroll_limit" "A loop with `unroll_limit` indexes a buffer that is in registers."
            "Annotate a loop that does not index the buffer, or keep the buffer in shared memory."
        LowerVectors "vectors" "Pass `vectors` finds a loop without a constant extent." REPORT
        LowerVerify "verify" "A lowered program breaks a promise of its level." REPORT
        LowerWarps "warps" "Warps or warpgroups are not whole in the block."
            "Bind whole warps (32 threads) or whole warpgroups (4 warps), and the same threads in all nests of the kernel."
    }
    Measure "measure" "Timings and checks on a GPU." {
        MeasureAlgorithm "algorithm" "cuBLASLt has no algorithm of this number."
            "Choose a number below the count that the error names."
        MeasureBus "bus" "The device's bus name holds a zero byte." REPORT
        MeasureChanged "changed" "A kernel changes an input." REPORT
        MeasureCount "count" "The program takes another number of arrays than are given."
            "Give one array for each argument of the program, in the order of the arguments."
        MeasureLibrary "library" "A GEMM of cuBLASLt was not set up." REPORT
        MeasureNoPeer "no_peer" "The baseline library has no such program."
            "Measure a GEMM: the baseline library has no other programs."
        MeasureOperand "operand" "A buffer of a baseline GEMM has the wrong size or type."
            "Give the operands in the order of the GEMM, with the types and sizes that the error names."
        MeasureSize "size" "An extent is beyond those of cuBLAS."
            "Use smaller extents: cuBLAS takes extents from 1 to 2^31 - 1."
        MeasureWrong "wrong" "A kernel computes a wrong result." REPORT
    }
    Nvdisasm "nvdisasm" "The disassembler." {
        NvdisasmMissing "missing" "nvdisasm is not found."
            "Run `sh .ci/tools.sh` in the source tree, or put nvdisasm on PATH."
        NvdisasmRefused "refused" "nvdisasm refuses its input."
            "Put an nvdisasm on PATH that knows the chip: newer versions do not read the code of old chips."
        NvdisasmRun "run" "The input of nvdisasm cannot be written."
            "Set `TMPDIR` to a folder that takes new files."
    }
    Page "page" "A kernel as a page." {
        PageJson "json" "A timeline cannot be printed as JSON." REPORT
    }
    Ptx "ptx" "Runs of PTX on the simulator." {
        PtxArguments "arguments" "The arguments are not those of the program."
            "Give one array for each parameter of the program, with the type and size that the error names."
        PtxBarrier "barrier" "Warps wait at a barrier with other counts or numbers than it has." REPORT
        PtxBounds "bounds" "An access is outside every memory that the thread may access." REPORT
        PtxCluster "cluster" "Warps wait at a cluster barrier in an order that it does not have." REPORT
        PtxCopy "copy" "An asynchronous copy has operands that the instruction does not take." REPORT
        PtxDeadlock "deadlock" "No warp can proceed." REPORT
        PtxDivergence "divergence" "Lanes of a warp differ where the instruction needs all of them alike." REPORT
        PtxEnd "end" "Control runs past the last instruction of the entry." REPORT
        PtxEnded "ended" "An access reaches the shared memory of a block that has ended." REPORT
        PtxEntry "entry" "The PTX has no entry of the kernel's name." REPORT
        PtxFragment "fragment" "A warp uses a fragment of another shape, type or layout than it was loaded with." REPORT
        PtxLaunch "launch" "A launch does not fit to the entry of the PTX." REPORT
        PtxLimit "limit" "The run needs more memory or more instructions than the simulator was allowed."
            "Use smaller extents, such as `--size 256` where the program has sizes, or raise `Options::limits` in the library."
        PtxMbarrier "mbarrier" "An mbarrier is used against its rules." REPORT
        PtxMisaligned "misaligned" "An address is not aligned to the access." REPORT
        PtxMode "mode" "PTX runs in the real types alone, not in integer mode."
            "Run PTX with `Mode::Real`. Run the lowered program in integer mode."
        PtxMulticast "multicast" "A multicast copy names blocks that the cluster does not have." REPORT
        PtxNc "nc" "`ld.global.nc` reads what the same kernel writes." REPORT
        PtxOperand "operand" "An instruction has an operand that it does not take." REPORT
        PtxParse "parse" "The text is not PTX." REPORT
        PtxPdl "pdl" "Global memory is accessed before the PDL wait, or a concurrent kernel ends without it." REPORT
        PtxPhase "phase" "A wait could mistake one phase of an mbarrier for another." REPORT
        PtxProxy "proxy" "A TMA copy may pass a generic access, because a proxy fence is missing." REPORT
        PtxRace "race" "Two threads access the same bytes, and nothing orders them." REPORT
        PtxReadonly "readonly" "A store writes what the program only reads." REPORT
        PtxSetmaxnreg "setmaxnreg" "`setmaxnreg` asks for registers that the warpgroup cannot have." REPORT
        PtxTensorMap "tensor_map" "A TMA copy has no tensor map, or one that the driver refuses." REPORT
        PtxUnfinished "unfinished" "The kernel ends while asynchronous work is under way." REPORT
        PtxUninitialised "uninitialised" "Bytes are used that nothing has written." REPORT
        PtxUnknown "unknown" "The simulator lacks an instruction." REPORT
        PtxUnwritten "unwritten" "The run ends without writing an element of an output." REPORT
        PtxWgmma "wgmma" "A wgmma or its fence is used against its rules." REPORT
    }
    Ptxas "ptxas" "The assembler." {
        PtxasChip "chip" "This ptxas does not know the chip."
            "Run `sh .ci/tools.sh` in the source tree, or put a ptxas on PATH that knows the chip."
        PtxasMissing "missing" "ptxas is not found."
            "Run `sh .ci/tools.sh` in the source tree, or put ptxas on PATH."
        PtxasRefused "refused" "ptxas refuses the PTX." REPORT
        PtxasRun "run" "The files of ptxas cannot be written or read."
            "Set `TMPDIR` to a folder that takes new files."
    }
    Reference "reference" "Results in f64." {
        ReferenceArguments "arguments" "The arguments are not those of the program."
            "Give one array for each parameter of the program, with the type and size of the parameter."
        ReferenceBound "bound" "A result is outside its error bound." NAIVE
        ReferenceExact "exact" "A result that must be exact is not." REPORT
        ReferenceForm "form" "The program is not of the form that the reference evaluates."
            "Give the program before its steps, with at most 64 buffers defined by each other."
        ReferenceShape "shape" "A buffer has no constant shape."
            "Give the program at constant sizes: `Func::at` sets dynamic sizes."
        ReferenceThread "thread" "A thread of the reference panicked." REPORT
    }
    Rows "rows" "Schedules of softmax and normalisations." {
        RowsExtent "extent" "A size is below 1."
            "Give at least one row of at least one element."
        RowsLong "long" "A row does not fit into the shared memory of the blocks that compute it."
            "Use rows of at most the length that the error names, or write a program that reads the row again for each stage."
        RowsSteps "steps" "The steps that are recommended do not apply." REPORT
        RowsType "type" "The type of data is none of f16, bf16 and f32."
            "Use f16, bf16 or f32."
    }
    Sim "sim" "Runs of programs on the simulator." {
        SimAlignment "alignment" "A vector access is not aligned to its size, or a TMA box to 16 bytes." REPORT
        SimArguments "arguments" "The arguments are not those of the program."
            "Give one array for each parameter of the program, with the type and size that the error names."
        SimAxis "axis" "A loop is bound to an axis that the simulator does not run." REPORT
        SimBounds "bounds" "An index is outside the shape of its buffer." NAIVE
        SimBuffer "buffer" "The program uses a buffer that it does not have."
            "Add the buffer to the program that your code builds. Report a program that warploom made."
        SimBulk "bulk" "A TMA copy has no tensor map of its array, or no box." REPORT
        SimCall "call" "An instruction is called with operands that it does not take." REPORT
        SimCode "code" "The code that the simulator runs is wrong." REPORT
        SimCopy "copy" "An asynchronous copy does not go to shared memory." REPORT
        SimDeadlock "deadlock" "No warp can proceed." REPORT
        SimDivergence "divergence" "Lanes of a warp, or warps of a block, differ where all must meet." REPORT
        SimDivision "division" "An index could be divided by zero."
            "Divide indices by positive constants."
        SimExtent "extent" "The extent of a loop differs between the threads of a warp." REPORT
        SimFragment "fragment" "The program has a fragment, which the simulator does not run before it is distributed." REPORT
        SimLimit "limit" "The run needs more memory or more statements than the simulator was allowed."
            "Use smaller extents, such as `--size 256` where the program has sizes, or raise `Options::limits` in the library."
        SimMbarrier "mbarrier" "An mbarrier is used against its rules." REPORT
        SimOverflow "overflow" "An index could exceed 62 bits."
            "Use smaller extents and factors in the indices."
        SimPdl "pdl" "Global memory is accessed before the PDL wait." REPORT
        SimRace "race" "Two threads access the same element, and nothing orders them." REPORT
        SimRank "rank" "An access has another number of indices than its buffer has dimensions."
            "Give an access one index for each dimension of its buffer."
        SimRaster "raster" "A rasterized loop has groups of less than one row."
            "Use groups of at least one row."
        SimResult "result" "The program computes something else than the naive program."
            "Expect it of a fault that `run --mutate` plants. Otherwise report it with the program and the steps."
        SimRole "role" "A warp-specialized role is where the simulator cannot run it." REPORT
        SimShape "shape" "A buffer has no constant shape, or kernels disagree about it."
            "Give the buffer a constant shape of fewer than 2^40 elements: `Func::at` sets dynamic sizes."
        SimShared "shared" "A shared buffer has no place inside the block's shared memory." REPORT
        SimSize "size" "The program is too long or too deep for the simulator."
            "Divide the program into several, and nest its loops and expressions less deeply."
        SimStopped "stopped" "The observer of a run has ended it."
            "Return `ControlFlow::Continue` from the observer."
        SimType "type" "An expression has another type or another number of lanes than its place."
            "Convert the expression to the type of its place."
        SimUnbound "unbound" "A variable is used outside its loop."
            "Use the variable inside its loop alone."
        SimUnfinished "unfinished" "A block ends while asynchronous work is under way." REPORT
        SimUninitialised "uninitialised" "An element is read that nothing has written." NAIVE
        SimUnwritten "unwritten" "The run ends without writing an element of an output." NAIVE
        SimValues "values" "A datum that is an index is outside the range that the program states."
            "Give data in the range that the program states for the input, or state a wider range."
        SimWalk "walk" "A persistent loop is not over blockIdx.x." REPORT
        SimWgmma "wgmma" "A wgmma or its fence is used against its rules." REPORT
        SimZero "zero" "An integer is divided by zero."
            "Change the program or its inputs, so that no divisor is zero."
    }
    Size "size" "Sizes that are known at launch." {
        SizeForm "form" "A dynamic size is the extent of what needs a constant one."
            "Use the size as the outermost extent of inputs and of what a block writes, or compile a kernel for each size."
        SizeRange "range" "The range of a dynamic size is empty, not within 1 and 2^31 - 1, or does not end at a multiple of `by`."
            "State a range within 1 and 2^31 - 1 that ends at a multiple of `by`, such as `size M in 8..=8192 by 8`."
        SizeValue "value" "A dynamic size has a value that the program does not allow, or arrays disagree about it."
            "Give arrays of one size that the program allows, or compile the program with a wider range of the size."
    }
    Step "step" "The text of steps, and names that they use." {
        StepArgs "args" "A step lacks an argument, or has one that its place does not take."
            "Write the step as `warploom explain STEP` shows it."
        StepBlock "block" "The program has no block of the name."
            "Name a block of the program. `warploom explain FILE` prints the program after each step."
        StepBuffer "buffer" "The program has no buffer of the name."
            "Name a buffer of the program. `warploom explain FILE` prints the program after each step."
        StepDetached "detached" "A block or loop that a step has found is not in the body of the program." REPORT
        StepGather "gather" "After the step, elements at an index from data would be read from memory that is not global or is written."
            "Read the elements in a block of their own, such as `G[i, j] f32 = A[X[i], j]`, and place that block."
        StepLimit "limit" "A schedule, or the program after a step, is larger than its limit."
            "Stay below the limit that the error names: with fewer steps or loops, less inlining or smaller numbers."
        StepLoop "loop" "The program has no loop of the name."
            "Name a loop of the program. `warploom explain FILE` prints the program after each step."
        StepMap "map" "The text is not an index map."
            "Write a map such as `[i, j] -> [i // 4, j, i % 4]`."
        StepName "name" "A word is not a name."
            "Use letters, digits and `_`, at most 64 of them."
        StepNames "names" "The names after `->` have the wrong count, or are in use."
            "Give after `->` as many names as the step makes, all of them free and different, or none."
        StepNumber "number" "A word is not a number."
            "Write a whole number."
        StepPrimitive "primitive" "There is no primitive of the name."
            "Choose from the steps that `warploom explain --primitives` lists."
        StepRequirement "requirement" "A primitive refuses with a requirement that it does not have." REPORT
        StepTwice "twice" "A loop is named twice."
            "Name each loop once."
        StepWord "word" "A word of a step is not one that its place takes."
            "Write the step as `warploom explain STEP` shows it."
    }
    Target "target" "Chips." {
        TargetName "name" "There is no target of the name."
            "Name one of the targets that the error lists, such as sm_90a."
    }
    Te "te" "Programs." {
        TeCondition "condition" "A condition in the syntax tree is none." REPORT
        TeEpilogue "epilogue" "An epilogue is given twice, or does not fit to the accumulators."
            "Name each epilogue once. For sums of integers, use `row_scales` or `column_scales` first."
        TeExtent "extent" "An iterator has no extent, two, or one outside the limits."
            "State one extent from 1 to 2^36 for the iterator, such as `i 1024`."
        TeGather "gather" "A datum is used as an index, and its values are not known."
            "State the values of the input, such as `input X s32[64] in 0..1000`, or bound the index with min and max."
        TeIndex "index" "An index is not of the form that indices have, or outside its buffer."
            "Give one index inside the buffer for each dimension, made of iterators, integers, `+ - * // %`, min and max."
        TeLimit "limit" "The program is larger than its limit."
            "Stay below the limit that the error names: divide the program, or compute parts of it into buffers."
        TeName "name" "A name is unknown, or taken."
            "Declare the name before its use, or choose a name that is free."
        TeOutput "output" "The program has no output."
            "Write `output` before the buffer that the caller receives."
        TeReduce "reduce" "A reduction is not of the form that reductions have."
            "Reduce over one list of iterators, with one value for each buffer, such as `S[i] f32 = sum(k 64) A[i, k]`."
        TeReducer "reducer" "A reducer breaks a law that reducers obey."
            "Give each component a constant neutral value, and a value that allows any order and grouping of the tuples."
        TeSize "size" "The program has another number of sizes than are given."
            "Give as many sizes as the error names."
        TeStorage "storage" "A buffer's strides or its alignment are wrong."
            "Give an input or output one stride for each dimension, without overlap, and an alignment that is a power of two."
        TeSyntax "syntax" "The text is not of the grammar."
            "Compare the text with the grammar that `warploom explain --programs` prints."
        TeType "type" "A value has the wrong type."
            "Convert the value, such as `f32(x)`, or use another operation or type."
    }
    TensorMap "tensor_map" "Tensor maps." {
        TensorMapShape "shape" "The driver would refuse the shape of a tensor map." REPORT
    }
    Tool "tool" "Other programs that are run." {
        ToolFolder "folder" "A folder for temporary files cannot be made."
            "Set `TMPDIR` to a folder that takes new files."
        ToolRun "run" "A tool cannot be run."
            "Make the tool executable, and set `TMPDIR` to a folder that takes new files."
        ToolTimeout "timeout" "A tool takes too long."
            "Unroll fewer loops or use smaller tiles, so that the tool has less code to read."
    }
    Type "type" "Types of expressions." {
        TypeBuffer "buffer" "An expression reads a buffer that the program does not have." REPORT
        TypeLanes "lanes" "Operands differ in their number of lanes."
            "Give all operands the same number of lanes."
        TypeLiteral "literal" "A literal is not a value of its type."
            "Write a literal that the type holds, or use another type."
        TypeOperand "operand" "An operand has the wrong type."
            "Convert the operand, such as `f32(x)`. Use a `bool` as a condition and integers as indices."
        TypeOperation "operation" "An operation does not exist on the type."
            "Convert the operand to a type that has the operation. Compare an index instead of using it as a `bool`."
    }
    Tune "tune" "The tuner and its records." {
        TuneDamage "damage" "A line of a record is not the line that was written."
            "Run `warploom records verify FILE`, which names every damaged line, and tune into another file."
        TuneKnob "knob" "A set of choices in the text of a space is malformed, or its name is taken or unknown."
            "Write a set of choices as `{8,16,32}`, or once as `{tile: 8,16,32}` and elsewhere as `{tile}`."
        TuneMismatch "mismatch" "A record is of another program, chip, device or schema."
            "Name a record of the same program, chip and device, or tune into another file."
        TuneNone "none" "No configuration of the space or the record is legal, right and timed."
            "Try more configurations with `--trials`, or name a record that has a timed trial."
        TuneProtocol "protocol" "A worker process and its parent do not understand each other." REPORT
        TuneRecord "record" "A record cannot be read or written, or another process writes it."
            "Name a file in a folder that can be written, and give each tuner its own file."
        TuneSpace "space" "The space has no knobs, more configurations than can be counted, or schedules of several programs or chips."
            "Write knobs into the steps of one program, such as `split i ? {8,16,32} -> i0 i1`, or use fewer choices."
        TuneWorker "worker" "A worker process cannot be started."
            "Use fewer processes with `--jobs`, and keep the file of warploom in its place while it runs."
    }
    Validate "validate" "Comparisons of the levels of a program." {
        ValidateKernels "kernels" "The lowered kernels compute something else than the program." REPORT
        ValidatePtx "ptx" "The PTX computes something else than the program, or cannot be run." REPORT
        ValidateStep "step" "The program after a step computes something else than before." REPORT
    }
    Verify "verify" "Promises of programs." {
        VerifyAxis "axis" "Two loops around a statement are bound to one axis."
            "Fuse the loops before they are bound, compute the staged buffer outside the outer loop, or bind another axis."
        VerifyBounds "bounds" "An index could be outside its buffer."
            "Give the dimension more elements or the loops fewer iterations, or guard the read with `select`."
        VerifyDomain "domain" "An iterator of a block could be outside its domain."
            "Exclude those iterations by a predicate of the block, or allow undecided claims with `--allow-tested`."
        VerifyExtent "extent" "An extent is not a positive number of the variables around it."
            "Give each loop and iterator a positive constant extent, and each rasterized loop its whole pair of loops."
        VerifyGather "gather" "Elements at an index from data are read from memory that is not global or is written."
            "Read the elements in a block of their own, such as `G[i, j] f32 = A[X[i], j]`, and place that block."
        VerifyId "id" "The program uses a name that it does not have." REPORT
        VerifyIdle "idle" "A loop with `spread` has no pipelined loop inside to spread its copies over."
            "Pipeline the loop and a loop inside, or remove the `annotate` step with `spread`."
        VerifyLevels "levels" "A loop over blocks is inside a loop over threads, or one block mentions lanes that run it together."
            "Reorder the loop over blocks outside the loop over threads. Bind a block's loops to threads alone or to warps alone."
        VerifyName "name" "A name is not unique, or a loop is introduced twice."
            "Give all loops, all blocks and all buffers different names, and introduce each variable once."
        VerifyOverlap "overlap" "Two blocks could write one element."
            "Bind to blocks only loops around every write of the buffer, or give each block its own with `set_scope BUFFER shared`."
        VerifyParam "param" "A parameter is no buffer of global memory with a positive size."
            "Make each parameter a global buffer of its own, with positive extents."
        VerifyPlacement "placement" "A loop or a buffer has a placement that it cannot have."
            "Give the loop or buffer a placement that `warploom explain STEP` allows."
        VerifyReduction "reduction" "A reduction is divided among threads or blocks that do not combine it."
            "Bind other loops than reduce loops, or use `rfactor` first. Split and fuse reduce loops apart from others."
        VerifySafety "safety" "A unit could read an element that it has not written."
            "Join writer and reader with `compute_at`, share the buffer with `set_scope`, or leave the loop unbound."
        VerifyScope "scope" "A variable is used outside its loop, or means two things."
            "Use each variable inside its loop alone, for one thing."
        VerifyStage "stage" "The program holds what only lowered programs have."
            "Leave synchronisation, instructions, lanes and offsets out of the program: lowering makes them."
        VerifyThreads "threads" "Loops of one kernel disagree about an axis of threads."
            "Split the loop so that its bound part has the extent of the other loop. The rest stays serial."
        VerifyType "type" "An expression does not have the type of its place."
            "Convert the value to the type of its buffer, and give one index for each dimension."
    }
}
