/* Burns 50, 30 and 20 % of a CPU, without a library. cc -O1 -g0 -static -nostdlib -fno-stack-protector -fomit-frame-pointer -fno-inline -o tiny tiny.c */
__asm__(".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n.cfi_undefined rip\ncall run\nhlt\n.cfi_endproc\n.size _start,.-_start\n");
static volatile unsigned long sink;
static __attribute__((noinline)) void spin(int n) { for (int i = 0; i < n * 1000; i++) sink = sink * 3 + 1; }
__attribute__((noinline)) int fifty(int n) { volatile char room[40]; room[n & 31] = 1; spin(50); return room[n & 31]; }
__attribute__((noinline)) int thirty(int n) { volatile char room[40]; room[n & 31] = 1; spin(30); return room[n & 31]; }
__attribute__((noinline)) int twenty(int n) { volatile char room[40]; room[n & 31] = 1; spin(20); return room[n & 31]; }
__attribute__((used)) void run(void) { for (int n = 0;; n++) sink += fifty(n) + thirty(n) + twenty(n); }
