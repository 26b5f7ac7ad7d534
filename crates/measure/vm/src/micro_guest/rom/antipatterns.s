# What guest kernels do at a cost that they need not pay, and its fix: a stamp before, a stamp after, as in exits.s.
# What takes a few instructions is done ANTIPATTERN_BATCH times between two stamps.

    .set UART, 0x3f8
    .set UART_STATUS, UART + 5
    .set LINE_BYTES, 32                 # of a trace line
    .set CURSOR, 0x3d4
    .set PM_TIMER, POWER_PORTS + 8
    .set HPET_COUNTER, HPET + 0xf0
    .set TICK_COUNT, 1000000            # of the 1 GHz timer: 1000 Hz
    .set TICK_WORK, 10000000            # steps of a loop: some milliseconds
    .set APIC_BASE, 0x1b
    .set X2APIC_EOI, 0x80b
    .set X2APIC_SELF_IPI, 0x83f

.Lantipatterns:
    leaq .Lantipattern_kinds(%rip), %rbx
    movl $((.Lantipattern_kinds_end - .Lantipattern_kinds) / 4), %esi
    jmp .Lby_kind

    # In the order of Antipattern, each with its fix.
    .balign 4
.Lantipattern_kinds:
    .long .Luart_polled - .Lantipattern_kinds
    .long .Luart_plain - .Lantipattern_kinds
    .long .Lcursor_moved - .Lantipattern_kinds
    .long .Lcursor_left - .Lantipattern_kinds
    .long .Ltick_1000 - .Lantipattern_kinds
    .long .Ltick_100 - .Lantipattern_kinds
    .long .Leoi - .Lantipattern_kinds
    .long .Leoi_msr - .Lantipattern_kinds
    .long .Lclock_pm - .Lantipattern_kinds
    .long .Lclock_tsc - .Lantipattern_kinds
    .long .Lclock_hpet - .Lantipattern_kinds
    .long .Lclock_tsc - .Lantipattern_kinds
    .long .Ldivided - .Lantipattern_kinds
    .long .Lmultiplied - .Lantipattern_kinds
    .long .Ltraced - .Lantipattern_kinds
    .long .Luntraced - .Lantipattern_kinds
    .long .Llock_saved - .Lantipattern_kinds
    .long .Llock_plain - .Lantipattern_kinds
    .long .Lcopied_twice - .Lantipattern_kinds
    .long .Lcopied_once - .Lantipattern_kinds
.Lantipattern_kinds_end:

    .macro POLL_UART                    # until it takes a byte; where there is none, all bits read as set
9:  movl $UART_STATUS, %edx
    inb %dx, %al
    testb $0x20, %al
    jz 9b
    .endm

.Luart_polled:
    BEFORE
    POLL_UART
    PORT_OUT UART, 0x2e
    STAMP
    AFTER .Luart_polled

.Luart_plain:
    BEFORE
    PORT_OUT UART, 0x2e
    STAMP
    AFTER .Luart_plain

.Lcursor_moved:
    BEFORE
    movw $0x072e, SCREEN
    PORT_OUT CURSOR, 0x0f
    PORT_OUT (CURSOR + 1), 1
    PORT_OUT CURSOR, 0x0e
    PORT_OUT (CURSOR + 1), 0
    STAMP
    AFTER .Lcursor_moved

.Lcursor_left:
    BEFORE
    movw $0x072e, SCREEN
    STAMP
    AFTER .Lcursor_left

# The same work while the timer ticks.
.Ltick_1000:
    movl $TICK_COUNT, %r14d
    jmp .Ltick_work
.Ltick_100:
    movl $(TICK_COUNT * 10), %r14d
.Ltick_work:
    movl $0xb, APIC + APIC_TIMER_DIVIDE             # by 1
    movl $(0x20000 | VECTOR_TICK), APIC + APIC_LVT_TIMER    # again and again
    movl %r14d, APIC + APIC_TIMER_INITIAL
    call 1f
    movl $0x10000, APIC + APIC_LVT_TIMER
    movl $0, APIC + APIC_TIMER_INITIAL
    ret
1:  BEFORE
    movl $TICK_WORK, %ecx
2:  decl %ecx
    jnz 2b
    STAMP
    AFTER 1b

# By MSR, for which the local APIC has to be in another mode. The way back leads over "off", which forgets all.
.Leoi_msr:
    movl $1, %eax
    xorl %ecx, %ecx
    cpuid
    btl $21, %ecx
    jc 1f
    FAIL FAILURE_NO_X2APIC
1:  leaq 5f(%rip), %rbx
    GATE_CALL
    call 2f
    leaq 6f(%rip), %rbx
    GATE_CALL
    jmp .Lapic_on
2:  leaq 7f(%rip), %rbx
    GATE_CALL
    call .Lwait_event
    leaq 8f(%rip), %rbx
    jmp .Lin_kernel_again
5:  WRITE_MSR APIC_BASE, (APIC_PHYSICAL | 0xd00)
    iretq
6:  WRITE_MSR APIC_BASE, (APIC_PHYSICAL | 0x100)
    WRITE_MSR APIC_BASE, (APIC_PHYSICAL | 0x900)
    iretq
7:  WRITE_MSR X2APIC_SELF_IPI, VECTOR_EVENT
    iretq
8:  movl $X2APIC_EOI, %ecx
    rdtsc
    movl %eax, %r14d
    movl %edx, %r15d
    xorl %eax, %eax
    xorl %edx, %edx
    wrmsr
    rdtsc
    iretq
.Lin_kernel_again:
    GATE_CALL
    shlq $32, %rdx
    orq %rdx, %rax
    shlq $32, %r15
    orq %r15, %r14
    movq %r14, %r8
    AFTER 2b

.Lclock_pm:
    call .Lpower_on
1:  BEFORE
    movl $PM_TIMER, %edx
    inl %dx, %eax
    STAMP
    AFTER 1b

.Lclock_hpet:
    movl HPET, %eax                     # what it can do: its tick's length is never 0 nor all ones
    leal 1(%rax), %ecx
    cmpl $1, %ecx
    ja 1f
    FAIL FAILURE_NO_HPET
1:  BEFORE
    movl HPET_COUNTER, %eax
    STAMP
    AFTER 1b

.Lclock_tsc:
    BEFORE
    lfence
    rdtsc
    STAMP
    AFTER .Lclock_tsc

# Ticks to nanoseconds: seconds and the rest each by a division, or one multiplication and a shift.
.Ldivided:
    movabsq $2600000000, %r15
    movl $1000000000, %r9d
    movabsq $123456789012345, %r14
1:  BEFORE
    movl $ANTIPATTERN_BATCH, %ecx
2:  movq %r14, %rax
    xorl %edx, %edx
    divq %r15
    imulq %r9, %rax
    movq %rax, %rbx
    movq %rdx, %rax
    mulq %r9
    divq %r15
    addq %rbx, %rax
    incq %r14
    decl %ecx
    jnz 2b
    STAMP
    AFTER 1b

.Lmultiplied:
    movl $1651910498, %r9d              # 10^9 * 2^32 / 2600000000
    movabsq $123456789012345, %r14
1:  BEFORE
    movl $ANTIPATTERN_BATCH, %ecx
2:  movq %r14, %rax
    mulq %r9
    shrdq $32, %rdx, %rax
    incq %r14
    decl %ecx
    jnz 2b
    STAMP
    AFTER 1b

# An interrupt of its own, to its end; with or without a line about it on the UART.
.Ltraced:
    movl $LINE_BYTES, %r14d
    jmp .Linterrupt
.Luntraced:
    xorl %r14d, %r14d
.Linterrupt:
    BEFORE
    movl $(0x40000 | VECTOR_EVENT), APIC + APIC_ICR
    call .Lwait_event
    movl %r14d, %ecx
1:  jrcxz 2f
    POLL_UART
    PORT_OUT UART, 0x2e
    decl %ecx
    jmp 1b
2:  movl $0, APIC + APIC_EOI
    STAMP
    AFTER .Linterrupt

# In kernel mode, as interrupts can be switched there alone.
.Llock_saved:
    leaq 1f(%rip), %rbx
    jmp .Lin_kernel
1:  rdtsc
    movl %eax, %r14d
    movl %edx, %r15d
    movl $ANTIPATTERN_BATCH, %ecx
2:  pushfq
    cli
    movl $1, %eax
    xchgl %eax, LOCK
    movl $0, LOCK
    popfq
    decl %ecx
    jnz 2b
    rdtsc
    iretq

.Llock_plain:
    leaq 1f(%rip), %rbx
    jmp .Lin_kernel
1:  rdtsc
    movl %eax, %r14d
    movl %edx, %r15d
    movl $ANTIPATTERN_BATCH, %ecx
2:  movl $1, %eax
    xchgl %eax, LOCK
    movl $0, LOCK
    decl %ecx
    jnz 2b
    rdtsc
    iretq

# 16 bytes handed over as two words or as one piece, each copy with a call and a check of where it goes.
.Lcopied_twice:
    BEFORE
    movl $ANTIPATTERN_BATCH, %ecx
1:  movl $SCREEN, %r9d
    movl $SCREEN + 16, %r14d
    call .Lcopy_8
    addq $8, %r9
    addq $8, %r14
    call .Lcopy_8
    decl %ecx
    jnz 1b
    STAMP
    AFTER .Lcopied_twice

.Lcopied_once:
    BEFORE
    movl $ANTIPATTERN_BATCH, %ecx
1:  movl $SCREEN, %r9d
    movl $SCREEN + 16, %r14d
    call .Lcopy_16
    decl %ecx
    jnz 1b
    STAMP
    AFTER .Lcopied_once

.Lcopy_16:
    leaq 16(%r9), %rax
    cmpq $RAM_BYTES, %rax
    ja 1f
    movq 8(%r14), %rbx
    movq (%r14), %rax
    movq %rbx, 8(%r9)
    movq %rax, (%r9)
1:  ret
.Lcopy_8:
    leaq 8(%r9), %rax
    cmpq $RAM_BYTES, %rax
    ja 1f
    movq (%r14), %rax
    movq %rax, (%r9)
1:  ret
