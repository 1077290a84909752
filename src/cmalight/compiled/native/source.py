"""The text around the steps: the loop over batches, and what it calls."""

from __future__ import annotations

PRELUDE = r"""
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#include <features.h>
#if defined(__GLIBC__)
#define VECTOR __attribute__((simd("notinbranch")))
#if __GLIBC_PREREQ(2, 35)
#define LATER VECTOR
#endif
#endif
#endif
#ifndef VECTOR
#define VECTOR
#endif
#ifndef LATER
#define LATER
#endif
extern "C" {
VECTOR float expf(float) noexcept; VECTOR double exp(double) noexcept;
VECTOR float logf(float) noexcept; VECTOR double log(double) noexcept;
VECTOR float sinf(float) noexcept; VECTOR double sin(double) noexcept;
VECTOR float cosf(float) noexcept; VECTOR double cos(double) noexcept;
VECTOR float powf(float, float) noexcept; VECTOR double pow(double, double) noexcept;
LATER float tanhf(float) noexcept; LATER double tanh(double) noexcept;
LATER float erff(float) noexcept; LATER double erf(double) noexcept;
LATER float log1pf(float) noexcept; LATER double log1p(double) noexcept;
LATER float expm1f(float) noexcept; LATER double expm1(double) noexcept;
}
#define TWO(name, own) static inline float name(float x) { return own##f(x); } \
  static inline double name(double x) { return own(x); }
TWO(exponential, exp) TWO(logarithm, log) TWO(sine, sin) TWO(cosine, cos) TWO(tangent, tanh) TWO(error_function, erf)
TWO(logarithm_1, log1p) TWO(exponential_1, expm1)
TWO(root, __builtin_sqrt) TWO(absolute, __builtin_fabs)
static inline float power(float x, float y) { return powf(x, y); }
static inline double power(double x, double y) { return pow(x, y); }
// A NaN goes through all of these, as it does in torch.
template <typename T> static inline T larger(T x, T y) { return x > y || x != x ? x : y; }
template <typename T> static inline T smaller(T x, T y) { return x < y || x != x ? x : y; }
template <typename T> static inline T positive(T x) { return x < 0 ? 0 : x; }
template <typename T> static inline T squared(T x) { return x * x; }

using Single = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                        const int*, const float*, const int*, const float*, float*, const int*);
using Double = void (*)(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                        const int*, const double*, const int*, const double*, double*, const int*);
struct Library { Single single; Double dble; bool* outside; };
// An index, or 0 and a mark where there is no such place: a batch may hold what torch would refuse.
static inline long long within(long long index, long long count, const Library& library) {
  if (index >= 0 && index < count) return index;
  *library.outside = true;
  return 0;
}
// Multiplications up to which a product is written out; a tile needs more registers than older processors have.
#ifdef __AVX512VL__
static const long SMALL = 16000000;
#else
static const long SMALL = 1500000;
#endif
static const int MOST_INNER = 512;
static inline Single of(const Library& library, float) { return library.single; }
static inline Double of(const Library& library, double) { return library.dble; }

// A tile of C = A B, held in registers: R rows by V vectors, the last of which begins at the column `last`, so that it
// may overlap the one before and nothing beyond the matrices is touched; WIDTH of its columns are written.
template <typename T, int R, int V, int WIDTH>
static __attribute__((noinline)) void tile(const T* __restrict a, const T* __restrict b, T* __restrict c, long inner,
                                           long a0, long a1, long b0, long c0, long last) {
  typedef T vector __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
  const int L = 32 / sizeof(T);
  vector sum[R][V] = {};
  for (long l = 0; l < inner; l++) {
    vector row[V];
    for (int v = 0; v < V; v++) row[v] = *(const vector*)(b + l * b0 + (v == V - 1 ? last : v * L));
    for (int r = 0; r < R; r++) {
      const T x = a[r * a0 + l * a1];
      for (int v = 0; v < V; v++) sum[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) {
      T* const place = c + r * c0 + (v == V - 1 ? last : v * L);
      if (WIDTH == L) *(vector*)place = sum[r][v];
      else for (int j = 0; j < WIDTH; j++) place[j] = sum[r][v][j];
    }
}

// All rows of some columns of C, REST of them beside the tiles of R.
template <typename T, int V, int WIDTH, int R, int REST>
static __attribute__((noinline)) void panel(const T* __restrict a, const T* __restrict b, T* __restrict c, long rows,
                                            long inner, long a0, long a1, long b0, long c0, long last) {
  for (; rows >= R; rows -= R, a += R * a0, c += R * c0) tile<T, R, V, WIDTH>(a, b, c, inner, a0, a1, b0, c0, last);
  if (REST) tile<T, REST ? REST : 1, V, WIDTH>(a, b, c, inner, a0, a1, b0, c0, last);
}

// Columns of B side by side, in blocks that stay in the nearest cache.
template <typename T, int length, int b0, int b1>
static __attribute__((noinline)) void pack(const T* __restrict b, T* __restrict to, long inner, long columns) {
  for (long first = 0; first < inner; first += 16)
    for (long l = first; l < first + 16 && l < inner; l++)
      for (long j = 0; j < columns; j++) to[l * length + j] = b[l * b0 + j * b1];
}

// The columns from `j` on; those of B are copied where they are not side by side, or too far from row to row.
template <typename T, int V, int WIDTH, int rows, int inner, int a0, int a1, int b0, int b1, int c0>
static inline void columns_of(const T* a, const T* b, T* c, long j, long last) {
  const int L = 32 / sizeof(T), R = V > 2 ? 5 : 8;
  if constexpr (b1 != 1 || WIDTH < L || b0 > MOST_INNER) {
    alignas(64) T packed[inner * V * L];
    pack<T, V * L, b0, b1>(b + j * b1, packed, inner, last + WIDTH);
    panel<T, V, WIDTH, R, rows % R>(a, packed, c + j, rows, inner, a0, a1, V * L, c0, last);
  } else panel<T, V, WIDTH, R, rows % R>(a, b + j, c + j, rows, inner, a0, a1, b0, c0, last);
}

// In panels of four vectors or, so that they are nearly alike, of fewer.
template <typename T, int rows, int columns, int inner, int a0, int a1, int b0, int b1, int c0>
static void own_product(const T* __restrict a, const T* __restrict b, T* __restrict c) {
  const int L = 32 / sizeof(T), vectors = (columns + L - 1) / L, panels = (vectors + 3) / 4;
  const int V = vectors / panels, wider = vectors % panels, end = (vectors - V) * L;
  long j = 0;
  for (int number = 0; number < wider; number++, j += (V + 1) * L)
    columns_of<T, V + 1, L, rows, inner, a0, a1, b0, b1, c0>(a, b, c, j, V * L);
  for (; j < end; j += V * L) columns_of<T, V, L, rows, inner, a0, a1, b0, b1, c0>(a, b, c, j, (V - 1) * L);
  if constexpr (columns < L) columns_of<T, 1, columns, rows, inner, a0, a1, b0, b1, c0>(a, b, c, 0, 0);
  else columns_of<T, V, L, rows, inner, a0, a1, b0, b1, c0>(a, b, c, j, columns - end - L);
}

// C = A B; the two numbers of each are the distances of its rows and of its columns in memory.
template <typename T, int rows, int columns, int inner, int a0, int a1, int b0, int b1, int c0, int c1>
static void product(const T* __restrict a, const T* __restrict b, T* __restrict c, const Library& library) {
  const auto gemm = of(library, T());
  const T one = 1, zero = 0;
  const int m = rows, n = columns, k = inner;
  if constexpr (c1 != 1) {
    product<T, columns, rows, inner, b1, b0, a1, a0, c1, c0>(b, a, c, library);
  } else if constexpr ((long)rows * columns * inner <= SMALL && inner <= MOST_INNER) {
    own_product<T, rows, columns, inner, a0, a1, b0, b1, c0>(a, b, c);
  } else if (gemm) {
    const int lda = a1 == 1 ? a0 : a1, ldb = b1 == 1 ? b0 : b1, ldc = c0;
    gemm(b1 == 1 ? "N" : "T", a1 == 1 ? "N" : "T", &n, &m, &k, &one, b, &ldb, a, &lda, &zero, c, &ldc);
  } else {
    for (long i = 0; i < rows; i++) {
      for (long j = 0; j < columns; j++) c[i * c0 + j] = 0;
      for (long l = 0; l < inner; l++)
        for (long j = 0; j < columns; j++) c[i * c0 + j] += a[i * a0 + l * a1] * b[l * b0 + j * b1];
    }
  }
}
"""

STEPS = r"""
extern "C" void run(char** a) {
  char **const states = (char**)a[2], **const spare_states = (char**)a[3], **const constants = (char**)a[4];
  char* const work = a[5];
  const long long* const rows[2] = {(long long*)a[8], (long long*)a[9]};
  const double* const rates[2] = {(double*)a[10], (double*)a[11]};
  const bool *const checks = (bool*)a[12], *const active = (bool*)a[15];
  const double *const bound = (double*)a[13], samples = *(double*)a[14];
  const long starts = *(long*)a[17], stop = *(long*)a[18];
  const Library library = {(Single)a[19], (Double)a[20], (bool*)a[31]};
  long& batch = *(long*)a[21];
  bool& going = *(bool*)a[22];
  double *const total = (double*)a[23], *const lowest = (double*)a[24], *const moved = (double*)a[25];
  const long counts[2] = {*(long*)a[26], *(long*)a[27]};
  const long begun = batch;
  bool is_spare[MOST_STARTS] = {};
  long first = 0;
  for (int part = 0; part < PARTS; part++) {
    const long end = stop < first + counts[part] ? stop : first + counts[part];
    while (going && batch < end) {
      const long here = batch - first, size = SIZES[part];
      for (long i = 0; i < size; i++) {
        const long long row = rows[part][here * size + i];
        __builtin_memcpy(work + i * INPUT_BYTES, a[6] + row * INPUT_BYTES, INPUT_BYTES);
        __builtin_memcpy(work + TARGETS_AT + i * TARGET_BYTES, a[7] + row * TARGET_BYTES, TARGET_BYTES);
      }
      char* const drawn = part ? a[29] : a[28] + (batch - begun) * DRAWN;
      bool doubtful = false;
      for (long s = 0; s < starts; s++) {
        if (!active[s]) continue;
        char *now[1 + STATES], *next[1 + STATES];
        for (int k = 0; k < 1 + STATES; k++) {
          char* own = (k ? states[k - 1] : a[0]) + s * BYTES[k];
          char* spare = (k ? spare_states[k - 1] : a[1]) + s * BYTES[k];
          now[k] = is_spare[s] ? spare : own;
          next[k] = is_spare[s] ? own : spare;
        }
        is_spare[s] = !is_spare[s];
        double value, added;
        const double* const lr = rates[part] + (here * starts + s) * GROUPS;
        (part ? step_1 : step_0)(library, work, now, next, lr, constants, drawn, &value, &added);
        if (batch == begun) ((double*)a[30])[s] = value;
        total[s] += size * (value + added);
        if (value < lowest[s] || value != value) lowest[s] = value;
        doubtful |= lowest[s] < 0 || !(total[s] / samples <= bound[s]);
      }
      if (part == 0) going = !(doubtful && checks[here]);
      batch++;
    }
    first += counts[part];
  }
  for (long s = 0; s < starts; s++) {
    if (is_spare[s])
      for (int k = 0; k < 1 + STATES; k++)
        __builtin_memcpy((k ? states[k - 1] : a[0]) + s * BYTES[k],
                         (k ? spare_states[k - 1] : a[1]) + s * BYTES[k], BYTES[k]);
    const Number *const w = (Number*)(a[0] + s * BYTES[0]), *const w0 = (Number*)(a[16] + s * BYTES[0]);
    const long count = BYTES[0] / sizeof(Number);
    double sum = 0;
#pragma omp simd reduction(+:sum)
    for (long i = 0; i < count; i++) sum += squared((double)(w[i] - w0[i]));
    Number zero = 0;  // or NaN, where the state is not finite
    for (int k = 1; k <= OPTIMIZERS_STATES; k++)  // not buffers, which may be of any kind and size
      if (BYTES[k] == BYTES[0]) {
        const Number* const state = (Number*)(states[k - 1] + s * BYTES[k]);
#pragma omp simd reduction(+:zero)
        for (long i = 0; i < count; i++) zero += 0 * state[i];
      }
    moved[s] = zero == 0 ? __builtin_sqrt(sum) : __builtin_inf();
  }
}
"""

EVALUATION = r"""
extern "C" void evaluate(char** a) {
  const Library library = {(Single)a[7], (Double)a[8], (bool*)a[11]};
  double& total = *(double*)a[6];
  for (long chunk = *(long*)a[4]; chunk < *(long*)a[5]; chunk++) {
    double value;
    evaluate_chunk(library, a[1], a[0], a[2] + chunk * INPUT_CHUNK, a[3] + chunk * TARGET_CHUNK, (char**)a[9],
                   a[10] + (chunk - *(long*)a[4]) * DRAWN_CHUNK, &value);
    total += value;
  }
}
"""
