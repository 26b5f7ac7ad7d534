//! The events of block requests, which QEMUs have declared alike since 2.10.

use super::events::QemuEvents;

/// As QEMU's own list declares them (`trace-events-all`).
const EVENTS: &str = r#"
virtio_blk_handle_read(void *vdev, void *req, uint64_t sector, size_t nsectors) "vdev %p req %p sector %"PRIu64" nsectors %zu"
virtio_blk_handle_write(void *vdev, void *req, uint64_t sector, size_t nsectors) "vdev %p req %p sector %"PRIu64" nsectors %zu"
virtio_blk_submit_multireq(void *vdev, void *mrb, int start, int num_reqs, uint64_t offset, size_t size, bool is_write) "vdev %p mrb %p start %d num_reqs %d offset %"PRIu64" size %zu is_write %d"
virtio_blk_req_complete(void *vdev, void *req, int status) "vdev %p req %p status %d"
virtio_notify_irqfd(void *vdev, void *vq) "vdev %p vq %p"
"#;

impl QemuEvents {
    /// The events of a virtio disk's requests, of any QEMU since 2.10. A trace may have others, which are counted as unknown.
    pub fn block_requests() -> QemuEvents {
        QemuEvents::parse(EVENTS).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sound() {
        assert_eq!(QemuEvents::block_requests().formats().iter().count(), 5);
    }
}
