# Kernel mode: the gate, and what interrupts and exceptions do.

# Does the routine that user code names in rbx, with interrupts off; it ends with iretq, behind the call.
.Lgate:
    testb $3, 8(%rsp)                   # of kernel mode it is an exception as any other
    jz .Ltraps + VECTOR_GATE * 16
    addq $GATE_CALL_BYTES, (%rsp)
    jmpq *%rbx
.Lzero:
    .byte 0

# An interrupt goes on in user mode, with the place it interrupted in r10, which nothing else uses. So its stamp is
# taken by native code, on the same clock as all others (a KVM that emulates kernel mode keeps another one for it).
    .macro HAND_OVER to
    movq (%rsp), %r10
    movq $(ROM + \to - vmtax_micro_rom), (%rsp)
    iretq
    .endm

.Lintx_interrupt:
    HAND_OVER .Lintx
.Levent_interrupt:
    HAND_OVER .Levent

# Ended here, with interrupts off: the next one may be waiting for that, and would take r10.
.Ltick_interrupt:
    movl $0, APIC + APIC_EOI
    iretq

# The timer wakes the CPU from the gate's hlt: back to user mode at once, past the frame of this interrupt, by
# that of the gate. From anywhere else it came too early.
.Ltimer_interrupt:
    testb $3, 8(%rsp)
    jz 1f
    movb $1, MISSED
    iretq
1:  movq 24(%rsp), %rsp
.Lignore:
    iretq

# The second PIC's interrupt went away before it was asked which: the first has delivered one, and wants its end.
.Lspurious_interrupt:
    pushq %rax
    movb $0x20, %al
    outb %al, $0x20
    popq %rax
    iretq

# User mode. No instruction here changes flags; r12 and r13 are for this alone.
.Lintx:
    movq %rax, %r12
    movq %rdx, %r13
    rdtsc
    movl %eax, EVENT_STAMP
    movl %edx, EVENT_STAMP + 4
    movl $(DISK_PORTS + VIRTIO_ISR), %edx
    inb %dx, %al                        # lets the line go
    jmp 1f
.Levent:
    movq %rax, %r12
    movq %rdx, %r13
    rdtsc
    movl %eax, EVENT_STAMP
    movl %edx, EVENT_STAMP + 4
1:  movb $1, EVENT_SEEN
    movq %r12, %rax
    movq %r13, %rdx
    jmpq *%r10

# Exceptions: none is expected. Says which and where, and stops.
    .balign 16
.Ltraps:
    .set number, 0
    .rept 32
    .balign 16
    pushq $number
    jmp .Ltrap
    .set number, number + 1
    .endr
.Ltrap:
    popq %rax
    movl $0x60227d00, %ecx              # those with an error code
    btl %eax, %ecx
    jnc 1f
    popq %rdx
1:  popq %rdx
    shlq $56, %rax
    orq %rdx, %rax
    movq %rax, MAILBOX + DETAIL
    movq $FAILURE_TRAP, MAILBOX + FAILURE
    SET_STATE STATE_FAILED
2:  hlt
    jmp 2b

    .macro GATE to, after=0
    .word \to - vmtax_micro_rom + \after, CODE64, 0x8e00, ROM >> 16
    .quad 0
    .endm

    .balign 16
.Lidt:
    .set number, 0
    .rept 32
    .if number == VECTOR_GATE
    GATE .Lgate
    .else
    GATE .Ltraps, (number * 16)
    .endif
    .set number, number + 1
    .endr
    .rept VECTOR_INTX - 32
    GATE .Lignore
    .endr
    GATE .Lintx_interrupt
    .rept VECTOR_PIC_SPURIOUS - VECTOR_INTX - 1
    GATE .Lignore
    .endr
    GATE .Lspurious_interrupt
    .rept VECTOR_EVENT - VECTOR_PIC_SPURIOUS - 1
    GATE .Lignore
    .endr
    GATE .Levent_interrupt
    GATE .Ltimer_interrupt
    GATE .Ltick_interrupt
    .rept VECTOR_SPURIOUS - VECTOR_TICK
    GATE .Lignore
    .endr
.Lidt_end:
.Lidt_pointer:
    .word .Lidt_end - .Lidt - 1
    .quad ROM + .Lidt - vmtax_micro_rom
