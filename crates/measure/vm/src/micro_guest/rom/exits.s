# The cost of each kind of exit: a stamp before, a stamp after.
#
# rbp: iterations to go; rdi: the entry. All others are a kind's own, save r10, r12 and r13 (traps.s).

    .set TIMER_COUNT, 1000000           # 1 ms at the 1 GHz of KVM's and QEMU's local APIC: longer than KVM polls
    .set CALIBRATION, 1 << 26           # ticks: 25 ms or so

.Lexits:
    leaq .Lkinds(%rip), %rbx
    movl $((.Lkinds_end - .Lkinds) / 4), %esi

# Goes to the routine of the ordered kind, in the table at rbx of rsi entries.
.Lby_kind:
    movl MAILBOX + HOW_MANY, %ebp
    movq %rbp, %rcx
    shlq $4, %rcx
    call .Ltouch_table
    movl $TABLE, %edi
    movq MAILBOX + KIND, %rcx
    cmpq %rsi, %rcx
    jb 1f
    FAIL FAILURE_UNKNOWN
1:  movslq (%rbx,%rcx,4), %rcx
    addq %rcx, %rbx
    jmpq *%rbx

    # In the order of ExitKind.
    .balign 4
.Lkinds:
    .long .Lempty - .Lkinds
    .long .Lempty_kernel - .Lkinds
    .long .Lpio_user_write - .Lkinds
    .long .Lpio_user_read - .Lkinds
    .long .Lpio_kernel_write - .Lkinds
    .long .Lpio_kernel_read - .Lkinds
    .long .Lmmio_user_write - .Lkinds
    .long .Lmmio_user_read - .Lkinds
    .long .Lmmio_kernel_read - .Lkinds
    .long .Lcpuid - .Lkinds
    .long .Lrdmsr - .Lkinds
    .long .Lhalt - .Lkinds
    .long .Linject - .Lkinds
    .long .Leoi - .Lkinds
.Lkinds_end:

    .macro BEFORE
    STAMP
    movq %rax, %r8
    .endm

    .macro AFTER again                  # the stamp after is in rax
    movq %r8, (%rdi)
    movq %rax, 8(%rdi)
    addq $(EXIT_WORDS * 8), %rdi
    incq MAILBOX + COUNT
    decq %rbp
    jnz \again
    ret
    .endm

.Lempty:
    BEFORE
    STAMP
    AFTER .Lempty

.Lpio_user_write:
    movl $NOWHERE_PORT, %r14d
    jmp .Lpio_write
.Lpio_kernel_write:
    movl $PIC_ELCR, %r14d
.Lpio_write:
    BEFORE
    movl %r14d, %edx
    xorl %eax, %eax
    outb %al, %dx
    STAMP
    AFTER .Lpio_write

.Lpio_user_read:
    movl $NOWHERE_PORT, %r14d
    jmp .Lpio_read
.Lpio_kernel_read:
    movl $PIC_ELCR, %r14d
.Lpio_read:
    BEFORE
    movl %r14d, %edx
    inb %dx, %al
    STAMP
    AFTER .Lpio_read

.Lmmio_user_write:
    movl $NOWHERE_MEMORY, %r14d
1:  BEFORE
    movl $0, (%r14)
    mfence                              # a write without an exit would still be on its way
    STAMP
    AFTER 1b

.Lmmio_user_read:
    movl $NOWHERE_MEMORY, %r14d
    jmp .Lmmio_read
.Lmmio_kernel_read:
    movl $(APIC + APIC_VERSION), %r14d
.Lmmio_read:
    BEFORE
    movl (%r14), %eax
    STAMP
    AFTER .Lmmio_read

.Lcpuid:
    BEFORE
    xorl %eax, %eax
    cpuid
    STAMP
    AFTER .Lcpuid

# In kernel mode, both stamps too: they are no stamps of the other clock, but their difference is what is wanted.
.Lempty_kernel:
    leaq 1f(%rip), %rbx
    jmp .Lin_kernel
1:  movl $0x1b, %ecx
    rdtsc
    movl %eax, %r14d
    movl %edx, %r15d
    rdtsc
    iretq

.Lrdmsr:
    leaq 1f(%rip), %rbx
    jmp .Lin_kernel
1:  movl $0x1b, %ecx                    # the local APIC's base: every KVM looks at it itself
    rdtsc
    movl %eax, %r14d
    movl %edx, %r15d
    rdmsr
    rdtsc
    iretq

.Lin_kernel:
    GATE_CALL
    shlq $32, %rdx
    orq %rdx, %rax
    shlq $32, %r15
    orq %r15, %r14
    movq %r14, %r8
    AFTER .Lin_kernel

# From the moment for which the local APIC's timer was set to the first instruction after the wake-up. The timer starts
# somewhere in the instruction that sets it; the moment counts from the stamp before, so what is found is never too
# little, and at most one exit too much.
.Lhalt:
    call .Lcalibrate                    # r15: TIMER_COUNT in ticks
    movl $VECTOR_TIMER, APIC + APIC_LVT_TIMER
1:  movb $0, MISSED
    STAMP
    leaq (%rax,%r15), %r8
    movl $TIMER_COUNT, APIC + APIC_TIMER_INITIAL
    leaq 3f(%rip), %rbx
    GATE_CALL
    STAMP
    movq %rax, %r14
    movl $0, APIC + APIC_EOI
    cmpb $0, MISSED
    jne 1b                              # this one does not count
    movq %r14, %rax
    AFTER 1b

3:  cmpb $0, MISSED                     # kernel mode, interrupts off
    jne 4f
    sti
    hlt
4:  iretq

# How many ticks TIMER_COUNT of the timer takes, in r15.
.Lcalibrate:
    movl $0x10000, APIC + APIC_LVT_TIMER    # masked, once
    movl $0xb, APIC + APIC_TIMER_DIVIDE     # by 1
    movl $-1, APIC + APIC_TIMER_INITIAL
    call .Lread_timer
    movq %r14, %r8
    movl %r15d, %r9d
1:  pause
    STAMP
    subq %r8, %rax
    cmpq $CALIBRATION, %rax
    jb 1b
    call .Lread_timer
    subq %r8, %r14                      # ticks
    subl %r15d, %r9d                    # counts: it counts down
    jnz 2f
    FAIL FAILURE_NO_TIMER
2:  movl $TIMER_COUNT, %eax
    mulq %r14
    divq %r9
    movq %rax, %r15
    ret

# The timer's count in r15 and the time of it in r14: of some readings that which took least, for a host may put its
# other work anywhere.
.Lread_timer:
    movq $-1, %rbx
    movl $16, %ecx
1:  STAMP
    movq %rax, %r11
    movl APIC + APIC_TIMER_CURRENT, %esi
    STAMP
    movq %rax, %rdx
    subq %r11, %rdx
    cmpq %rbx, %rdx
    jae 2f
    movq %rdx, %rbx
    shrq $1, %rdx
    leaq (%r11,%rdx), %r14
    movl %esi, %r15d
2:  decl %ecx
    jnz 1b
    ret

# From the write that sends this CPU an interrupt to the handler's first instruction in user mode.
.Linject:
    BEFORE
    movl $(0x40000 | VECTOR_EVENT), APIC + APIC_ICR
    call .Lwait_event
    movl $0, APIC + APIC_EOI
    movq EVENT_STAMP, %rax
    AFTER .Linject

# The end of such an interrupt.
.Leoi:
    movl $(0x40000 | VECTOR_EVENT), APIC + APIC_ICR
    call .Lwait_event
    BEFORE
    movl $0, APIC + APIC_EOI
    mfence
    STAMP
    AFTER .Leoi
