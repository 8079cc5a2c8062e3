//! Which devices run code for a chip. No other file knows the rule.

use std::ops::RangeInclusive;

/// Later than every device.
pub(crate) const LAST: u32 = 9999;

/// The devices that run PTX for a chip, by compute capability times ten: those not older; of an accelerated chip (`sm_90a`) its own alone.
pub(crate) fn ptx_devices(sm: u32, accelerated: bool) -> RangeInclusive<u32> {
    sm..=if accelerated { sm } else { LAST }
}

/// The devices that run machine code for a chip. They run its PTX and have the same major compute capability.
pub(crate) fn code_devices(sm: u32, accelerated: bool) -> RangeInclusive<u32> {
    sm..=(*ptx_devices(sm, accelerated).end()).min(sm / 10 * 10 + 9)
}
