//! Memory mappings that unmap themselves: UMEM (anonymous, huge pages or not) and the rings of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Size of the huge pages asked for.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// One readable and writable mapping, zeroed when anonymous. Unmapped on drop, over its whole length.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range of the process, not of a thread; whoever dereferences `base` argues for the
// access itself.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out the address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory, populated at once so that the hot path takes no page fault.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// Anonymous memory on 2 MiB pages. The length is rounded up to whole pages: unmapping a huge mapping by any other
    /// length fails, and would leak it.
    pub(super) fn huge(len: usize) -> io::Result<Self> {
        let len = len.checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | flags, -1, 0)
    }

    /// A ring of an AF_XDP socket, `offset` being one of the kernel's page offsets.
    pub(super) fn ring(fd: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        // SAFETY: without MAP_FIXED the kernel picks an unused range, so no memory that Rust knows of is touched; it
        // checks every argument.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are what mmap returned and was given, and this is the only owner; rings and UMEM
        // keep the mapping in an `Arc` or a field for as long as they hold pointers into it.
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        if result != 0 {
            tracing::error!(len = self.len, error = %io::Error::last_os_error(), "munmap failed, memory leaks");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_keeps_its_length_and_fails_when_absurd() {
        let mapping = Mapping::anonymous(3 * 4096).unwrap();
        assert_eq!(mapping.len(), 3 * 4096);
        assert!(Mapping::anonymous(usize::MAX / 2).is_err());
        assert!(Mapping::huge(usize::MAX - 5).is_err());
    }
}
