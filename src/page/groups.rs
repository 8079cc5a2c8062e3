//! Groups of asynchronous work, which a warp closes and waits for: copies, MMAs, bulk stores.

/// A group of asynchronous work: when it is done, and when it has read shared memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Group {
    done: u32,
    read: u32,
}

/// What a warp has started and not waited for.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    open: Group,
    closed: Vec<Group>,
}

impl Groups {
    /// Work of the open group: when it is done, and when it has read shared memory.
    pub fn add(&mut self, done: u32, read: u32) {
        self.open = Group { done: self.open.done.max(done), read: self.open.read.max(read) };
    }

    /// Closes the open group.
    pub fn commit(&mut self) {
        self.closed.push(std::mem::take(&mut self.open));
    }

    /// When at most `groups` of the closed groups are under way.
    pub fn passed(&self, groups: u32, read: bool) -> u32 {
        let end = self.closed.len().saturating_sub(groups as usize);
        self.closed[..end].iter().map(|g| if read { g.read } else { g.done }).max().unwrap_or(0)
    }
}
