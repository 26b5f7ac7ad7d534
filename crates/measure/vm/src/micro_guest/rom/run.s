# Requests to a virtio-blk disk, one at a time, through its legacy interface.

    .set VIRTIO_HOST_FEATURES, 0x00
    .set VIRTIO_GUEST_FEATURES, 0x04
    .set VIRTIO_QUEUE_PAGE, 0x08
    .set VIRTIO_QUEUE_SIZE, 0x0c
    .set VIRTIO_QUEUE_SELECT, 0x0e
    .set VIRTIO_QUEUE_NOTIFY, 0x10
    .set VIRTIO_STATUS, 0x12
    .set VIRTIO_ISR, 0x13
    .set VIRTIO_CONFIG_VECTOR, 0x14     # with MSI-X only; the device's own registers follow
    .set VIRTIO_QUEUE_VECTOR, 0x16
    .set VIRTIO_BLK_FLUSH, 1 << 9

    .set RING, 0x180000                 # descriptors, available, used; 64 KiB hold queues of up to 1024
    .set RING_BYTES, 0x10000
    .set HEADER, 0x1c0000               # the request's header; its status on another cache line
    .set STATUS, 0x1c0040

    .macro DISK_OUT size, register, value
    movl $(DISK_PORTS + \register), %edx
    movl $\value, %eax
    out\size
    .endm

.Lrun:
    movl $0x10011af4, %esi
    movl $FAILURE_NO_DISK, %edi
    call .Lfind_virtio                  # rbx is its configuration address from here on
    leal 0x10(%rbx), %eax
    CONFIG_SELECT
    movl $(DISK_PORTS | 1), %eax
    outl %eax, %dx
    leal 4(%rbx), %eax
    CONFIG_SELECT
    movl $7, %eax                       # ports, memory, bus master
    cmpl $COMPLETION_INTX, MAILBOX + COMPLETION
    je 3f
    orl $0x400, %eax                    # no INTx
3:  outw %ax, %dx
    DISK_OUT "b %al, %dx", VIRTIO_STATUS, 0
    xorl %r8d, %r8d
    call .Lset_msix                     # gives in esi where the device's own registers begin
    DISK_OUT "b %al, %dx", VIRTIO_STATUS, 1
    DISK_OUT "b %al, %dx", VIRTIO_STATUS, 3

    # Flush alone: a driver without it makes QEMU write through.
    movl $(DISK_PORTS + VIRTIO_HOST_FEATURES), %edx
    inl %dx, %eax
    andl $VIRTIO_BLK_FLUSH, %eax
    movl $(DISK_PORTS + VIRTIO_GUEST_FEATURES), %edx
    outl %eax, %dx

    leal DISK_PORTS + 4(%rsi), %edx     # capacity, sectors
    inl %dx, %eax
    shlq $32, %rax
    movq %rax, %rcx
    leal DISK_PORTS(%rsi), %edx
    inl %dx, %eax
    orq %rcx, %rax
    movq %rax, MAILBOX + CAPACITY
    movl MAILBOX + BLOCK, %esi
    shrl $9, %esi                       # rsi: sectors of a block, from here on
    movq MAILBOX + BLOCKS, %rcx
    imulq %rsi, %rcx
    cmpq %rcx, %rax
    jae 4f
    FAIL FAILURE_SMALL_DISK

4:  movl $RING, %edi
    movl $(RING_BYTES / 8), %ecx
    xorl %eax, %eax
    rep stosq
    DISK_OUT "w %ax, %dx", VIRTIO_QUEUE_SELECT, 0
    movl $(DISK_PORTS + VIRTIO_QUEUE_SIZE), %edx
    xorl %eax, %eax
    inw %dx, %ax
    leal -1(%rax), %ecx
    cmpl $1024, %ecx
    jb 5f
    movq %rax, MAILBOX + DETAIL
    FAIL FAILURE_BAD_QUEUE
5:  movl %eax, %r15d
    shll $4, %r15d
    leaq RING(%r15), %r15               # r15: available ring
    leaq 6 + 4095(%r15,%rax,2), %r14
    andq $-4096, %r14                   # r14: used ring
    DISK_OUT "l %eax, %dx", VIRTIO_QUEUE_PAGE, (RING >> 12)
    cmpl $COMPLETION_MSIX, MAILBOX + COMPLETION
    jne 6f
    DISK_OUT "w %ax, %dx", VIRTIO_CONFIG_VECTOR, 0xffff
    DISK_OUT "w %ax, %dx", VIRTIO_QUEUE_VECTOR, 0
6:  cmpl $COMPLETION_POLLED, MAILBOX + COMPLETION
    jne 7f
    movw $1, (%r15)                     # no interrupt, please
7:  DISK_OUT "b %al, %dx", VIRTIO_STATUS, 7
    cmpl $COMPLETION_INTX, MAILBOX + COMPLETION
    jne 8f
    PORT_OUT 0xa1, 0xf7
    PORT_OUT 0x21, 0xfb

    # Three descriptors for every request: header, data, status.
8:  movl $RING, %edi
    movl $HEADER, (%rdi)
    movl $16, 8(%rdi)
    movl $0x00010001, 12(%rdi)          # next: 1
    movl $BUFFER, 16(%rdi)
    movl MAILBOX + BLOCK, %eax
    movl %eax, 24(%rdi)
    movl MAILBOX + DIRECTION, %eax
    movl %eax, HEADER
    movl $0, HEADER + 4
    xorl $1, %eax
    leal 0x00020001(,%rax,2), %eax      # next: 2; a read has the device write
    movl %eax, 28(%rdi)
    movl $STATUS, 32(%rdi)
    movl $1, 40(%rdi)
    movl $2, 44(%rdi)                   # the device writes

    cmpl $0, MAILBOX + DIRECTION
    je 9f
    movl $BUFFER, %edi
    movl $(MAX_BLOCK / 8), %ecx
    movabsq $WRITE_MARK, %rax
    rep stosq
9:  movl MAILBOX + HOW_MANY, %ecx
    imulq $(REQUEST_WORDS * 8), %rcx
    call .Ltouch_table

    movl $TABLE, %ebp                   # rbp: the request's entry
    xorl %r8d, %r8d                     # r8: requests made
    xorl %r9d, %r9d                     # r9: block
    movq MAILBOX + SEED, %rdi
    movl MAILBOX + COMPLETION, %ebx

.Lrequest:
    cmpq $0, MAILBOX + STRIDE
    jne 1f
    movabsq $LCG_MUL, %rax
    imulq %rax, %rdi
    movabsq $LCG_ADD, %rax
    addq %rax, %rdi
    movq %rdi, %r9
    shrq $32, %r9
    imulq MAILBOX + BLOCKS, %r9
    shrq $32, %r9
1:  movq %r9, %rax
    imulq %rsi, %rax
    movq %rax, HEADER + 8
    movq %rax, 32(%rbp)
    cmpl $0, MAILBOX + DIRECTION
    je 2f
    movq %rax, BUFFER
2:  movb $0xff, STATUS
    movb $0, EVENT_SEEN
    movq $0, 16(%rbp)
    incl %r8d

    STAMP                               # before the device can see it: it need not wait for the notification
    movq %rax, (%rbp)
    movw %r8w, 2(%r15)
    movl $(DISK_PORTS + VIRTIO_QUEUE_NOTIFY), %edx
    xorl %eax, %eax
    outw %ax, %dx
    STAMP
    movq %rax, 8(%rbp)

    testl %ebx, %ebx
    jnz .Lby_interrupt
3:  movl $65536, %ecx
4:  cmpw %r8w, 2(%r14)
    je .Lcompleted
    pause
    decl %ecx
    jnz 4b
    STAMP
    subq (%rbp), %rax
    cmpq MAILBOX + TIMEOUT, %rax
    jb 3b
    FAIL FAILURE_TIMEOUT

.Lby_interrupt:
    call .Lwait_event
    movq EVENT_STAMP, %rax
    movq %rax, 16(%rbp)
    cmpw %r8w, 2(%r14)
    je .Lcompleted
    call .Lacknowledge                  # about something else
    jmp .Lby_interrupt

.Lcompleted:
    STAMP
    movq %rax, 24(%rbp)
    testl %ebx, %ebx
    jz 5f
    call .Lacknowledge
5:  movzbl STATUS, %eax
    testl %eax, %eax
    jz 6f
    movq %rax, MAILBOX + DETAIL
    FAIL FAILURE_IO
6:  addq $(REQUEST_WORDS * 8), %rbp
    movq %r8, MAILBOX + COUNT
    addq MAILBOX + STRIDE, %r9
    cmpq MAILBOX + BLOCKS, %r9
    jb 7f
    subq MAILBOX + BLOCKS, %r9
7:  cmpl MAILBOX + HOW_MANY, %r8d
    jb .Lrequest
    ret

# End of interrupt, after the stamps: it is no part of the request.
.Lacknowledge:
    cmpl $COMPLETION_INTX, %ebx
    je 1f
    movl $0, APIC + APIC_EOI
    ret
1:  PORT_OUT 0xa0, 0x20
    PORT_OUT 0x20, 0x20
    ret

# Finds the first virtio device of bus 0 with vendor and number esi; failure edi where there is none.
.Lfind_virtio:
    movl $0x80000000, %ebx
1:  movl %ebx, %eax
    CONFIG_SELECT
    inl %dx, %eax
    cmpl %esi, %eax
    je 2f
    addl $0x800, %ebx
    cmpl $0x80010000, %ebx
    jb 1b
    movl %edi, %ebx
    jmp .Lfailed
2:  ret

# Finds a device's MSI-X capability, places its table r8 bytes behind DISK_MSIX, and turns it on for COMPLETION_MSIX, off otherwise.
.Lset_msix:
    movl $0x14, %esi
    leal 0x34(%rbx), %eax
    CONFIG_SELECT
    inb %dx, %al
1:  movzbl %al, %ecx
    andl $0xfc, %ecx
    jz 4f
    leal (%rbx,%rcx), %eax
    CONFIG_SELECT
    inl %dx, %eax
    cmpb $0x11, %al
    je 2f
    shrl $8, %eax
    jmp 1b
2:  andl $0x3fffffff, %eax              # not enabled, no vector masked
    cmpl $COMPLETION_MSIX, MAILBOX + COMPLETION
    jne 3f
    orl $0x80000000, %eax
    movl $0x18, %esi
3:  outl %eax, %dx
    leal 4(%rbx,%rcx), %eax             # where the table is: a BAR's number, and an offset in it
    CONFIG_SELECT
    inl %dx, %eax
    movl %eax, %ecx
    andl $7, %ecx
    andl $0xffff8, %eax
    leal DISK_MSIX(%rax,%r8), %edi
    leal 0x10(%rbx,%rcx,4), %eax
    CONFIG_SELECT
    movl $DISK_PHYSICAL, %eax
    addl %r8d, %eax
    outl %eax, %dx
    movl $APIC_PHYSICAL, (%rdi)
    movl $0, 4(%rdi)
    movl $VECTOR_EVENT, 8(%rdi)
    movl $0, 12(%rdi)
    ret
4:  cmpl $COMPLETION_MSIX, MAILBOX + COMPLETION
    jne 5f
    FAIL FAILURE_NO_MSIX
5:  ret
