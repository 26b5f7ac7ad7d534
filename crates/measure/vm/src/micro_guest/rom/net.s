# Round trips over a virtio-net card, one at a time, through its legacy interface. The host has laid a request at FRAME, the card's
# header before it; all that differs from one to the next is its number.

    .set TRANSMIT_RING, RING + RING_BYTES
    .set NET_BUFFERS, FRAME + MAX_BLOCK # what is received
    .set NET_BUFFER_BITS, 11
    .set NET_BUFFER_COUNT, 16           # more than may come at once; QEMU's least queue has 64

    .macro CARD_OUT size, register, value
    movl $(NET_PORTS + \register), %edx
    movl $\value, %eax
    out\size
    .endm

.Lround_trips:
    movl $0x10001af4, %esi
    movl $FAILURE_NO_CARD, %edi
    call .Lfind_virtio
    leal 0x10(%rbx), %eax
    CONFIG_SELECT
    movl $(NET_PORTS | 1), %eax
    outl %eax, %dx
    leal 4(%rbx), %eax
    CONFIG_SELECT
    movl $0x407, %eax                   # ports, memory, bus master; no INTx
    outw %ax, %dx
    CARD_OUT "b %al, %dx", VIRTIO_STATUS, 0
    movl $CARD_OFFSET, %r8d
    call .Lset_msix
    CARD_OUT "b %al, %dx", VIRTIO_STATUS, 1
    CARD_OUT "b %al, %dx", VIRTIO_STATUS, 3
    CARD_OUT "l %eax, %dx", VIRTIO_GUEST_FEATURES, 0    # whole packets, with their checksums
    CARD_OUT "w %ax, %dx", VIRTIO_CONFIG_VECTOR, 0xffff

    movl $1, %ecx
    movl $TRANSMIT_RING, %edi
    call .Lset_queue
    movl %eax, %esi                     # rsi: available ring for transmission
    movw $1, (%rsi)                     # no interrupt, please: the response tells
    movl $FRAME, TRANSMIT_RING          # the only descriptor; the ring has its number, 0, everywhere
    movl MAILBOX + BLOCK, %eax
    movl %eax, TRANSMIT_RING + 8
    CARD_OUT "w %ax, %dx", VIRTIO_QUEUE_VECTOR, 0xffff

    xorl %ecx, %ecx
    movl $RING, %edi
    call .Lset_queue
    movl %eax, %r15d                    # r15: available ring for reception
    movl %edx, %r14d                    # r14: used ring
    leal -1(%rcx), %r9d                 # r9: mask of its places
    CARD_OUT "w %ax, %dx", VIRTIO_QUEUE_VECTOR, 0
    xorl %ecx, %ecx
    movl $RING, %edi
1:  movl %ecx, %eax
    shll $NET_BUFFER_BITS, %eax
    addl $NET_BUFFERS, %eax
    movl %eax, (%rdi)
    movl $(1 << NET_BUFFER_BITS), 8(%rdi)
    movl $2, 12(%rdi)                   # the device writes
    movw %cx, 4(%r15,%rcx,2)
    addl $16, %edi
    incl %ecx
    cmpl $NET_BUFFER_COUNT, %ecx
    jb 1b
    movw %cx, 2(%r15)
    CARD_OUT "b %al, %dx", VIRTIO_STATUS, 7
    CARD_OUT "w %ax, %dx", VIRTIO_QUEUE_NOTIFY, 0

    movl MAILBOX + HOW_MANY, %ecx
    imulq $(REQUEST_WORDS * 8), %rcx
    call .Ltouch_table
    movl $TABLE, %ebp                   # rbp: the round trip's entry
    xorl %r8d, %r8d                     # r8: requests sent
    xorl %ebx, %ebx                     # rbx: packets received
    movl MAILBOX + SEED, %edi           # rdi: number of the request

.Lround_trip:
    movl %edi, FRAME + KEY
    movl %edi, %eax
    movq %rax, 32(%rbp)
    movq $0, 24(%rbp)
    movb $0, EVENT_SEEN
    incl %r8d
    STAMP                               # before the device can see it
    movq %rax, (%rbp)
    movw %r8w, 2(%rsi)
    movl $(NET_PORTS + VIRTIO_QUEUE_NOTIFY), %edx
    movl $1, %eax
    outw %ax, %dx
    STAMP
    movq %rax, 8(%rbp)

.Lresponse:
    call .Lwait_event
    movq EVENT_STAMP, %rax
    movq %rax, 16(%rbp)
1:  cmpw %bx, 2(%r14)
    jne 2f
    movl $0, APIC + APIC_EOI            # no more: the response is still to come
    jmp .Lresponse
2:  movl %ebx, %eax
    andl %r9d, %eax
    movl 4(%r14,%rax,8), %r11d          # the buffer
    movl 8(%r14,%rax,8), %ecx
    incl %ebx
    cmpl MAILBOX + BLOCK, %ecx
    jne 3f
    movl %r11d, %eax
    shll $NET_BUFFER_BITS, %eax
    cmpl %edi, NET_BUFFERS + KEY(%rax)
    jne 3f
    movl FRAME + KEY + 4, %ecx
    cmpl %ecx, NET_BUFFERS + KEY + 4(%rax)
    jne 3f
    STAMP
    movq %rax, 24(%rbp)
3:  movzwl 2(%r15), %eax                # the buffer is the device's again
    andl %r9d, %eax
    movw %r11w, 4(%r15,%rax,2)
    incw 2(%r15)
    cmpq $0, 24(%rbp)
    je 1b                               # somebody else's
    movl $0, APIC + APIC_EOI
    addq $(REQUEST_WORDS * 8), %rbp
    movq %r8, MAILBOX + COUNT
    incl %edi
    cmpl MAILBOX + HOW_MANY, %r8d
    jb .Lround_trip
    ret

# Gives the card's queue ecx a ring at edi: its available ring in eax, its used ring in edx, its size in ecx.
.Lset_queue:
    movl $(NET_PORTS + VIRTIO_QUEUE_SELECT), %edx
    movl %ecx, %eax
    outw %ax, %dx
    pushq %rdi
    movl $(RING_BYTES / 8), %ecx
    xorl %eax, %eax
    rep stosq
    popq %rdi
    movl $(NET_PORTS + VIRTIO_QUEUE_SIZE), %edx
    xorl %eax, %eax
    inw %dx, %ax
    leal -1(%rax), %ecx
    cmpl $1024, %ecx
    jb 1f
    movq %rax, MAILBOX + DETAIL
    FAIL FAILURE_BAD_QUEUE
1:  movl %eax, %ecx
    movl %edi, %eax
    shrl $12, %eax
    movl $(NET_PORTS + VIRTIO_QUEUE_PAGE), %edx
    outl %eax, %dx
    movl %ecx, %eax
    shll $4, %eax
    addl %edi, %eax
    leal 6 + 4095(%rax,%rcx,2), %edx
    andl $-4096, %edx
    ret
