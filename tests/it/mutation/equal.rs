//! The mutants that compute the same as the program, each with the reason.

/// Why a mutant that nothing finds computes the same.
const REGISTERS: &str =
    "what is guarded sets registers of threads that own no element of the result: nothing reads them";
const IDLE: &str = "a guard stops each statement of the threads and blocks beyond the edge: they need not exist";
const STOPPED: &str = "the guards inside let no statement run in a further iteration";
const ENOUGH: &str = "the size needs 18 iterations, and the guard inside stops the others";
const FEWER: &str = "the size needs fewer iterations than the tile has, and the guards inside stop the others";
const ANYONE: &str = "another thread of the block does it alone";
const SAME_QUOTIENT: &str = "the end of the full groups, one further on, has the same quotients";
const AHEAD: &str = "it moves past a load into registers, which no other thread reads";
const BEYOND: &str = "rows of a tile beyond the edge of the result, which are cut off";
const ROUNDED: &str = "it moves past the rounding of sums, which stays in registers";
const PRODUCTS: &str = "it moves past products, which stay in registers";
const NEXT_SLOT: &str = "what it fills too much is a slot that is filled anew before it is read";
const BESIDE: &str = "columns of a tile beyond the edge of the result, which are cut off";
const ANEW: &str = "the register is loaded anew before it is used";
const OTHER_SLOT: &str = "what was read last lies in another slot than the bytes that the result takes";
const LONE: &str = "the grid has one tile, whose addresses do not ask for its number";
const LONE_ROW: &str = "the tiles lie in one row, whose number no address asks for";
const ZEROS: &str = "it moves past the zeros that sums begin with, which stay in registers";
const MARGIN: &str = "A ends with an element that no sum contains; it need not be fetched";
const FROM_ZERO: &str = "these are the first products: the sums that they are added to are all zero";
const TURNS: &str = "the loader waits for the slots in turn, and has waited for one that is left later";
const ONE_WARP: &str = "the role has one warp";
const STOPPED_ANYWAY: &str = "the loader's guard stops what is beyond the tile";
const UNREAD: &str = "what is fetched beyond the tile, or left out at the edge, nobody reads";
const SETTER: &str = "it moves past what the thread does that has set the mbarriers";
const CUT: &str = "what is computed beyond the edges the copy engine cuts off";
const OF_NONE: &str = "the other threads have no stores to wait for";
const WAITS: &str = "it moves past a wait for stores, which lie elsewhere";
const NEXT_BARRIER: &str = "the barrier that follows, or the one before, does the same";
const READ_BEFORE: &str = "the slots that are filled first were read before the last barrier";
const TOGETHER: &str = "groups that are waited for together";
const WAITED: &str = "these products read slots that the wait before has waited for";
const NO_FIRST: &str = "these are not the first products: they add in any case";
const OWN_ROWS: &str = "each warp writes where the rows of A lay that it alone has read";
const COPIES: &str = "it moves past a wait for copies, which touch no registers";
const REGISTERS_FENCED: &str = "it moves past the fence of the sum, which stays in registers";
const LAST_SLOT: &str = "the next turn may take the last slot's phase for its own, if that slot's copies land late: found in \
                         some of many orders (turns::a_turn_passed_on_too_early_is_found), not in those drawn here";
const PASSED_ON: &str = "it moves past the turn that is passed on, which touches no sum";
const WHOLE_WARP: &str = "a warp waits for products as a whole: its lanes need not meet for that";
const LEFT_LAST: &str = "the slots that are left last are not filled again: nobody waits for these arrivals (that no others are \
                         missed: crossing::what_stands_between_slots_is_needed)";
const BY_ITS_WARP: &str =
    "the lane that stores goes on with those that fence: they all come to the store's election behind it";
const FENCED_TOGETHER: &str = "the lanes of a warp fence in one instruction, in front of the one that arrives for them";
const FENCED_BEFORE: &str = "the slot was read two iterations before: the fence of the iteration between stands in front of the same \
                             barrier";

/// The survivors: subject, class, what was damaged, and why it cannot change a result, or where it is found. Each was looked at.
pub const EQUAL: &[(&str, &str, &str, &str)] = &[
    ("d2l [64, 64, 32]", "guard", "`if threadIdx.y < 8`", REGISTERS),
    ("d2l [35, 34, 18]", "guard", "xi_init < 35 and threadIdx.x*4 + yi_init < 34`", REGISTERS),
    ("mlc_local [35, 34, 18]", "guard", "i_2_init < 35 and threadIdx.x*8 + j_2_init < 34`", REGISTERS),
    ("mlc_shared [35, 34, 18]", "guard", "i_2_init < 35 and threadIdx.x % 8*8 + j_2_init < 34`", REGISTERS),
    ("recommended f32 NT 33x35x18", "guard", "i_2_init < 33 and", REGISTERS),
    ("d2l [35, 34, 18]", "loop", "loop ki runs", ENOUGH),
    ("step2", "loop", "loop k_inner runs", ENOUGH),
    ("auto_", "loop", "loop kl runs 15 times", FEWER),
    ("auto_", "loop", "loop kl runs 17 times", FEWER),
    ("auto_f16_wmma", "loop", "loop kl runs 7 times", FEWER),
    ("auto_f16_wmma", "loop", "loop kl runs 9 times", FEWER),
    ("auto_f16_wmma [35, 34, 18]", "loop", "loop bg runs 4 times", STOPPED),
    ("auto_f16_wmma [35, 34, 18]", "launch", "threadIdx.z", IDLE),
    (
        "persistent_mma",
        "barrier moved",
        "(WAR A_s: A_s writes bytes that C_s used as C_s in the iteration before) moved up",
        ZEROS,
    ),
    ("persistent_", "walk", "i0 became 1", LONE_ROW),
    ("auto_s4 [35, 34, 18]", "loop", "loop av runs", FEWER),
    ("auto_s4 [35, 34, 18]", "loop", "loop bv runs", FEWER),
    ("auto_s4 [35, 34, 18]", "loop", "loop ki runs", FEWER),
    ("gpu_v3 [35, 34, 18]", "loop", "loop ko runs 4 times", STOPPED),
    ("mlc_local [35, 34, 18]", "loop", "loop k_0 runs 6 times", STOPPED),
    ("mlc_shared [35, 34, 18]", "loop", "loop k_0 runs 4 times", STOPPED),
    ("mlc_shared [35, 34, 18]", "loop", "loop a_0 runs 3 times", STOPPED),
    ("mlc_shared [35, 34, 18]", "loop", "loop b_0 runs 3 times", STOPPED),
    ("window_sum_cooperative", "loop", "loop ax0_0 runs 3 times", STOPPED),
    ("elementwise blocks inlined into the last", "loop", "loop k_0 runs 6 times", STOPPED),
    ("recommended f32 NT 33x35x18", "loop", "loop k_0 runs 3 times", STOPPED),
    ("f16 NN 24x56x120 by mma", "guard", "B[b_0*448 + threadIdx.x // 8*56", BESIDE),
    ("f16 NN 24x56x120 by mma", "loop", "loop a_0 runs 5 times", NEXT_SLOT),
    ("f16 NN 24x56x120 by mma", "loop", "loop b_0 runs 9 times", NEXT_SLOT),
    ("f16 NN 24x56x120 by mma", "loop", "loop gm runs 3 times", ANEW),
    ("f16 NN 24x56x120 by mma", "loop", "loop s_0 runs 3 times", BEYOND),
    ("f16 NN 24x56x120 by mma", "loop", "loop s_0 runs 5 times", STOPPED),
    ("f16 NN 24x56x120 by mma", "barrier", "(WAR C_s: C_f writes bytes that B_f used as B_s)", OTHER_SLOT),
    ("f16 NT 32x64x160 by mma", "barrier moved", "(WAR C_s: out writes bytes that B_f used as B_s) moved up", PRODUCTS),
    ("by mma", "walk", "0 became 1", LONE),
    ("blocks walked in groups", "loop", "loop k_0 runs 4 times", STOPPED),
    ("blocks walked in groups", "walk", "_0 became min(blockIdx.x, 21) ", SAME_QUOTIENT),
    ("steps of registers", "loop", "loop B_r_1 runs 5 times", ANEW),
    ("copies between the steps of registers", "read moved", "= C_l[j2 + 1] + A_r[0]", FROM_ZERO),
    ("copies between the steps of registers", "read moved", "= C_l[4 + j2 + 1] + A_r[1]", FROM_ZERO),
    ("copies between the steps of registers", "read moved", "= C_l[8 + j2 + 1] + A_r[2]", FROM_ZERO),
    ("rows filled up", "loop", "loop k1 runs 15 times", "the last elements of a row are the zeros"),
    ("ladder_pipelined", "barrier moved", "(RAW A_s: C reads what A_s wrote) moved up", AHEAD),
    ("a maximum of maxima", "loop", "loop k_1 runs 26 times", "an element in two maxima is in their maximum once"),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop im runs 3 times", BEYOND),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop om runs 3 times", BEYOND),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop s_0 runs 7 times", BEYOND),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop s_0 runs 9 times", STOPPED),
    ("mma_f16_ragged [128, 128, 160]", "barrier moved", "(RAW A_s: A_f reads what A_s wrote", AHEAD),
    ("mma_f16_stmatrix", "barrier moved", "(WAR C_s: C_f writes bytes that A_f used as A_s) moved up", ROUNDED),
    ("wmma_f16 [128, 128, 160]", "barrier moved", "(RAW A_s: A_f reads what A_s wrote", AHEAD),
    ("wmma_f16 [128, 128, 160]", "loop", "loop b_0 runs 3 times", NEXT_SLOT),
    ("wmma_s8 [128, 128, 160]", "barrier moved", "(WAR C_s: acc writes bytes that A_f used as A_s) moved up", PRODUCTS),
    ("[35, 34, 18]", "launch", "blockIdx", IDLE),
    ("[333]", "launch", "blockIdx", IDLE),
    ("elementwise blocks inlined into the last", "launch", "blockIdx", IDLE),
    ("a batch over blockIdx.z", "launch", "blockIdx", IDLE),
    ("recommended f32 NT 33x35x18", "launch", "blockIdx", IDLE),
    ("d2l [35, 34, 18]", "launch", "threadIdx", IDLE),
    ("mlc_local [35, 34, 18]", "launch", "threadIdx", IDLE),
    ("split_k [64, 64, 32]", "barrier moved", "(RAW B_s: P reads what B_s wrote) moved up", AHEAD),
    ("window_sum_shared", "guard", "became `if threadIdx.x == 1`", ANYONE),
    ("a minimum over shared memory", "guard", "became `if threadIdx.x == 1`", ANYONE),
    ("window_sum_cooperative [333]", "guard", "became `if blockIdx.x*128 + ax0_0*128 + threadIdx.x < 335 and", MARGIN),
    ("window_sum_shared [333]", "guard", "became `if blockIdx.x*128 + ax0 < 335`", MARGIN),
    ("window_sum_roles", "slot", "mbarrier.arrive (WAR A_shared", TURNS),
    ("window_sum_roles", "loop", "loop ax0_0 runs 6 times", STOPPED_ANYWAY),
    ("window_sum_roles [1300]", "loop", "loop i_t runs 9 times", STOPPED),
    ("window_sum_roles", "guard moved", "threadIdx.x < 131`", UNREAD),
    ("window_sum_roles [1300]", "guard moved", "< 1302 and", MARGIN),
    ("window_sum_roles [1300]", "launch", "blockIdx", IDLE),
    ("boxes", "barrier moved", "(the mbarriers are set) moved down", SETTER),
    ("boxes", "guard", "`if blockIdx.x*", CUT),
    ("boxes", "launch", "blockIdx", IDLE),
    ("boxes", "election changed", "warps to bulk_wait_read", OF_NONE),
    ("a ring of boxes", "wait moved", "(RAW A_s: the slot's loads have landed) moved down", WAITS),
    ("a ring of boxes again and again", "barrier", "(the mbarriers are set)", NEXT_BARRIER),
    (
        "a ring of boxes again and again",
        "barrier",
        "(WAR A_s: A_s writes what B read in the iteration before)",
        READ_BEFORE,
    ),
    (
        "a ring of boxes again and again",
        "fence",
        "(WAR A_s: A_s writes what B read in the iteration before)",
        READ_BEFORE,
    ),
    ("wgmma_f16_staged", "commit", "commit_group (A_s, B_s)", TOGETHER),
    ("wgmma_f16_staged", "loop", "loop bo runs", FEWER),
    ("wgmma_f16_staged", "loop", "loop kk runs", STOPPED),
    ("wgmma_f16_staged", "fence moved", "wgmma_fence", COPIES),
    ("wgmma_f16_staged", "wait weakened", "wait_group 1 (RAW A_s", WAITED),
    ("wgmma_f16_staged", "barrier moved", "(RAW A_s: mma reads what A_s copied) moved down", WAITED),
    ("wgmma_f16_staged", "init", "adds where", NO_FIRST),
    ("wgmma_f16_staged", "wait moved", "wgmma_wait 0 (RAW the sum; WAR the tiles) moved down", OWN_ROWS),
    ("wgmma_f16_staged", "barrier", "(WAR C_s: C_f writes bytes that mma used as A_s)", OWN_ROWS),
    ("wgmma_s8 with narrow", "wait moved", "the slot is full) moved down", REGISTERS_FENCED),
    ("wgmma_f16_alternate with narrow", "wait moved", "the slot is full) moved down", LAST_SLOT),
    ("strips that warps", "fence moved", "proxy_fence (RAW C_s", BY_ITS_WARP),
    ("strips that warps", "commit moved", "bulk_commit (C_s) moved up", TOGETHER),
    ("wgmma_f16_alternate with narrow", "fence moved", "wgmma_fence", PASSED_ON),
    ("with narrow tiles", "barrier", "(WAR A_s, B_s: all lanes have read the slot)", WHOLE_WARP),
    (
        "with narrow tiles",
        "wait moved",
        "wgmma_wait 0 (RAW the sum; WAR the tiles: the products in flight) moved down",
        WHOLE_WARP,
    ),
    ("with narrow tiles", "election changed", "warps to bulk_wait_read", OF_NONE),
    ("with narrow tiles", "walk", "i0 became 1", LONE_ROW),
    ("worked example", "wait moved", "the slot is full) moved down", REGISTERS_FENCED),
    ("worked example", "wait moved", "(RAW A_s, B_s: the slot's loads have landed) moved down", REGISTERS_FENCED),
    ("worked example", "barrier", "(WAR A_s, B_s: all lanes have read the slot)", WHOLE_WARP),
    (
        "worked example",
        "wait moved",
        "wgmma_wait 0 (RAW the sum; WAR the tiles: the products in flight) moved down",
        WHOLE_WARP,
    ),
    ("worked example", "election changed", "warps to bulk_wait_read", OF_NONE),
    ("worked example", "walk", "i0 became 1", LONE_ROW),
    ("worked example without roles", "barrier", "(the mbarriers are set)", NEXT_BARRIER),
    (
        "worked example without roles",
        "barrier",
        "(WAR B_s: B_s writes what mma read in the iteration before)",
        READ_BEFORE,
    ),
    ("all parts of the worked example", "election changed", "one thread of 1 warps to mbarrier.wait", ONE_WARP),
    ("a wave of the worked example's tiles", "election changed", "one thread of 1 warps to mbarrier.wait", ONE_WARP),
    ("a wave of the worked example's tiles", "fence moved", "proxy_fence (RAW C_s", BY_ITS_WARP),
    ("a wave of the worked example's tiles", "shared memory", "C_s lies over A_s", OWN_ROWS),
    ("a wave of the worked example's tiles", "launch", "blockIdx", CUT),
    ("worked example", "barrier moved", "(no block leaves while another one may still reach it) moved up", WAITS),
    ("fragments across", "fence moved", "what was read is there) moved up", PRODUCTS),
    ("fragments across", "fence moved", "what was read is there) moved down", FENCED_TOGETHER),
    ("fragments across", "fence removed", "what was read is there)", LEFT_LAST),
    ("fragments across the slots of a block", "fence moved", "A_s writes what A_f read) moved up", PRODUCTS),
    ("fragments in place", "barrier moved", "(the mbarriers are set) moved down", SETTER),
    ("fragments in place", "wait moved", "the slot's loads have landed) moved down", PRODUCTS),
    ("fragments across slots between products", "wait moved", "the slot is full) moved down", PRODUCTS),
    ("fragments across", "barrier", "all lanes have read the slot)", LEFT_LAST),
    ("fragments across", "election changed", "one thread of 1 warps to mbarrier.arrive (WAR", LEFT_LAST),
    ("fragments across", "arrival", "mbarrier.arrive (WAR A_s, B_s: the slot is read)", LEFT_LAST),
    ("fragments across", "election changed", "one thread of 1 warps to mbarrier.wait", ONE_WARP),
    ("fragments across the slots of a cluster", "slot", "the slot's readers have left it) of the next slot", TURNS),
    ("fragments across the slots of a block", "barrier moved", "(the mbarriers are set) moved down", SETTER),
    ("a factor from registers", "fence moved", "what was read is there) moved down", FENCED_TOGETHER),
    ("a factor from registers", "guard moved", "became `if k0 >= 1 and k0 < 7`", LEFT_LAST),
    ("a factor from registers without roles", "barrier", "(the mbarriers are set)", NEXT_BARRIER),
    (
        "a factor from registers without roles",
        "fence moved",
        "proxy_fence (WAR A_s: A_s writes what A_f read in the iteration before) moved down",
        FENCED_BEFORE,
    ),
];
