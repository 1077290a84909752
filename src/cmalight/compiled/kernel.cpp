// Training steps and evaluations of a stack of layers: one source for all shapes, called through `Job` (mirrored in interface.py).
//
// Matrices are dense and row by row; a batch of samples is `rows` lines of `outputs` numbers per sample. Parameters,
// buffers and optimizer state belong to the caller and are changed in place; all else lies in the workspace.

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef int64_t i64;

enum Kind { LINEAR, EMBEDDING, ACTIVATION, DROPOUT, BATCH_NORM, LAYER_NORM };
enum Function { RELU, LEAKY_RELU, ELU, GELU, GELU_TANH, SILU, SIGMOID, TANH, SOFTPLUS, HARDTANH };
enum Loss { MSE, L1, BCE, CROSS_ENTROPY };
enum Method { GRADIENT, SGD, ADAM, SOAP, ADAGRAD, ADADELTA };

struct Layer {
  i64 kind, function;
  i64 rows, inputs, outputs;  // lines per sample, numbers per line before and after
  i64 weight, bias;           // places in Job::parameters, or -1
  i64 flag;                   // batch norm: normalises by the batch; embedding: the padding index, or -1
  double a, b;                // options of the function; of the norms: eps, momentum
  void *mean, *variance;      // running statistics, or null
  i64* tracked;               // batches seen so far, or null
  const void* mask;           // of a dropout, for the first step of the call
};

struct Parameter {
  void* value;
  void* state[6];
  i64 count, rows, columns;
  i64 group;  // -1: stays as it is
  i64 fresh;  // no momentum yet
  double steps;
};

struct Group {
  double lr, weight_decay, first, second, eps;  // first, second: betas, momentum and dampening, lr_decay, or rho
  i64 flag;                                     // nesterov, or decoupled weight decay
  i64 refresh_interval;                         // SOAP
};

struct Job {
  i64 is_double, layers_count, parameters_count, method;
  const Layer* layers;
  Parameter* parameters;
  const Group* groups;
  i64 samples, input_size, target_size;  // numbers per sample
  const void *inputs, *targets;          // inputs of an embedding and targets of cross entropy are int64
  const i64* rows;                       // of the epoch; null evaluates all samples in their order
  i64 rows_count, batch_size, first_step, steps;
  const double* factors;
  double* losses;
  double* counts;  // of an evaluation: the weight of each mean loss
  void* outputs;   // of an evaluation, or null
  i64 loss, ignored;
  double smoothing;
  const void *loss_weight, *positive_weight;  // per class, or per number of a target
  char* workspace;
};

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define VECTOR __attribute__((simd("notinbranch")))
#if __GLIBC_PREREQ(2, 35)
extern "C" {  // glibc has these for whole vectors
VECTOR float tanhf(float) noexcept;
VECTOR double tanh(double) noexcept;
VECTOR float erff(float) noexcept;
VECTOR double erf(double) noexcept;
VECTOR float log1pf(float) noexcept;
VECTOR double log1p(double) noexcept;
VECTOR float expm1f(float) noexcept;
VECTOR double expm1(double) noexcept;
}
#endif
#endif
static inline float hyperbolic_tangent(float x) { return tanhf(x); }
static inline double hyperbolic_tangent(double x) { return tanh(x); }
static inline float error_function(float x) { return erff(x); }
static inline double error_function(double x) { return erf(x); }
static inline float log_1_plus(float x) { return log1pf(x); }
static inline double log_1_plus(double x) { return log1p(x); }
static inline float exponential_minus_1(float x) { return expm1f(x); }
static inline double exponential_minus_1(double x) { return expm1(x); }

// 2^n by its bits. A NaN becomes some whole number, which then multiplies a NaN.
static inline float power_of_two(float n) {
  const uint32_t bits = ((uint32_t)(int32_t)n + 127) << 23;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline double power_of_two(double n) {
  const uint64_t bits = ((uint64_t)(i64)n + 1023) << 52;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline float rounded(float x) { return __builtin_rintf(x); }
static inline double rounded(double x) { return __builtin_rint(x); }

// e^x = 2^n e^r with |r| <= ln(2)/2 and a Taylor series; unlike libm's it is inlined. NaN stays NaN.
static inline float series(float r) {
  float p = 1 / 5040.0f;
  const float factorials[] = {720, 120, 24, 6, 2, 1, 1};
  for (int i = 0; i < 7; i++) p = p * r + 1 / factorials[i];
  return p;
}
static inline double series(double r) {
  double p = 1 / 6227020800.0;
  const double factorials[] = {479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1};
  for (int i = 0; i < 13; i++) p = p * r + 1 / factorials[i];
  return p;
}
static inline float rest(float x, float n) { return (x - n * 0.693359375f) - n * -2.12194440e-4f; }
static inline double rest(double x, double n) {
  return (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
}
template <typename T> static inline T clamped(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
template <typename T> constexpr bool is_float = sizeof(T) == 4;
template <typename T> static inline T exponential(T x) {  // from the subnormal numbers to infinity
  x = is_float<T> ? clamped(x, T(-104), T(89)) : clamped(x, T(-746), T(710));
  const T n = rounded(x * T(M_LOG2E)), half = rounded(n / 2);
  return series(rest(x, n)) * power_of_two(half) * power_of_two(n - half);
}
template <typename T> static inline T sigmoid(T x) {
  const T most = is_float<T> ? 88 : 709, z = clamped(-x, -most, most), n = rounded(z * T(M_LOG2E));
  return 1 / (1 + series(rest(z, n)) * power_of_two(n));
}

// Vectors of the processor's width, and parts of one: the first `n` lanes.
#if defined(__AVX512F__)
enum { BYTES = 64, MOST_VECTORS = 4, REGISTERS = 32 };
#elif defined(__AVX__)
enum { BYTES = 32, MOST_VECTORS = 2, REGISTERS = 16 };
#else
enum { BYTES = 16, MOST_VECTORS = 2, REGISTERS = 16 };
#endif
#define UNROLL _Pragma("GCC unroll 16")  // so that arrays of vectors stay in registers
template <int size> struct Integer { typedef int32_t type; };
template <> struct Integer<8> { typedef int64_t type; };
template <typename T> struct Vector { typedef T type __attribute__((vector_size(BYTES))); };
template <typename T> using vector = typename Vector<T>::type;
template <typename T> constexpr int lanes = BYTES / sizeof(T);

template <typename T> struct Part {
  int n;
  vector<T> load(const T* p) const {
    vector<T> v = {};
    for (int i = 0; i < n; i++) v[i] = p[i];
    return v;
  }
  void store(T* p, vector<T> v) const {
    for (int i = 0; i < n; i++) p[i] = v[i];
  }
};
#if defined(__AVX512F__)
template <> struct Part<float> {
  __mmask16 mask;
  explicit Part(int n) : mask((__mmask16)((1u << n) - 1)) {}
  vector<float> load(const float* p) const { return (vector<float>)_mm512_maskz_loadu_ps(mask, p); }
  void store(float* p, vector<float> v) const { _mm512_mask_storeu_ps(p, mask, (__m512)v); }
};
template <> struct Part<double> {
  __mmask8 mask;
  explicit Part(int n) : mask((__mmask8)((1u << n) - 1)) {}
  vector<double> load(const double* p) const { return (vector<double>)_mm512_maskz_loadu_pd(mask, p); }
  void store(double* p, vector<double> v) const { _mm512_mask_storeu_pd(p, mask, (__m512d)v); }
};
#elif defined(__AVX__)
alignas(32) static const int32_t LANES[] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
template <> struct Part<float> {
  __m256i mask;
  explicit Part(int n) : mask(_mm256_loadu_si256((const __m256i*)(LANES + 8 - n))) {}
  vector<float> load(const float* p) const { return (vector<float>)_mm256_maskload_ps(p, mask); }
  void store(float* p, vector<float> v) const { _mm256_maskstore_ps(p, mask, (__m256)v); }
};
template <> struct Part<double> {
  __m256i mask;
  explicit Part(int n) : mask(_mm256_loadu_si256((const __m256i*)(LANES + 8 - 2 * n))) {}
  vector<double> load(const double* p) const { return (vector<double>)_mm256_maskload_pd(p, mask); }
  void store(double* p, vector<double> v) const { _mm256_maskstore_pd(p, mask, (__m256d)v); }
};
#endif
template <typename T> static inline vector<T> load(const T* p) {
  vector<T> v;
  memcpy(&v, p, BYTES);
  return v;
}
template <typename T> static inline void store(T* p, vector<T> v) { memcpy(p, &v, BYTES); }

// A square of as many numbers as a vector has, transposed. Step by step the first and the second half of the vectors are
// interleaved, as cards are shuffled.
#if !defined(__clang__)
#define TRANSPOSES 1
template <typename T> static void transpose(const T* from, i64 from_step, T* to, i64 to_step) {
  enum { L = lanes<T> };
  typedef typename Integer<sizeof(T)>::type integer __attribute__((vector_size(BYTES)));
  integer low, high;
  UNROLL for (int i = 0; i < L; i++) low[i] = i / 2 + i % 2 * L, high[i] = low[i] + L / 2;
  vector<T> v[L], w[L];
  UNROLL for (int i = 0; i < L; i++) v[i] = load(from + i * from_step);
  UNROLL for (int stage = 1; stage < L; stage *= 2) {
    UNROLL for (int i = 0; i < L / 2; i++) {
      w[2 * i] = __builtin_shuffle(v[i], v[i + L / 2], low);
      w[2 * i + 1] = __builtin_shuffle(v[i], v[i + L / 2], high);
    }
    UNROLL for (int i = 0; i < L; i++) v[i] = w[i];
  }
  UNROLL for (int i = 0; i < L; i++) store(to + i * to_step, v[i]);
}
#else
#define TRANSPOSES 0
template <typename T> static void transpose(const T*, i64, T*, i64) {}
#endif

// packed[p][q] = from[p][q], whose rows and columns are b0 and b1 apart, in whole squares if the columns are contiguous;
// the last ones overlap those before.
template <typename T>
static void pack(i64 inner, i64 width, const T* from, i64 b0, i64 b1, T* packed, i64 step) {
  const i64 L = lanes<T>;
  if (TRANSPOSES && b0 == 1 && inner >= L && width >= L) {
    for (i64 q = 0; q < width; q += L)
      for (i64 p = 0; p < inner; p += L) {
        const i64 q0 = q + L <= width ? q : width - L, p0 = p + L <= inner ? p : inner - L;
        transpose(from + q0 * b1 + p0, b1, packed + p0 * step + q0, step);
      }
    return;
  }
  for (i64 first = 0; first < inner; first += 16)
    for (i64 q = 0; q < width; q++)
      for (i64 p = first; p < inner && p < first + 16; p++) packed[p * step + q] = from[p * b0 + q * b1];
}

// A block of C = A B in registers: R rows by V vectors, of the last of which `last` lanes count.
template <typename T> struct Tile {
  const T *a, *b, *start;  // start: what C begins with, row by row `start_step` apart; or null
  const T* level;          // else the number that each row of C begins with; or null for zeros
  T* c;
  i64 inner, a0, a1, b0, c0, start_step;
  int last;
};
template <typename T, int R, int V> static void multiply(const Tile<T>& t) {
  const Part<T> part{t.last};
  const int L = lanes<T>;
  vector<T> sum[R][V] = {};
  if (t.start)
    UNROLL for (int r = 0; r < R; r++)
      UNROLL for (int v = 0; v < V; v++) {
        const T* const from = t.start + r * t.start_step + v * L;
        sum[r][v] = v == V - 1 ? part.load(from) : load(from);
      }
  else if (t.level)
    UNROLL for (int r = 0; r < R; r++)
      UNROLL for (int v = 0; v < V; v++) sum[r][v] += t.level[r];
  const T *a = t.a, *b = t.b;
  for (i64 l = 0; l < t.inner; l++, a += t.a1, b += t.b0) {
    vector<T> row[V];
    UNROLL for (int v = 0; v < V; v++) row[v] = v == V - 1 ? part.load(b + v * L) : load(b + v * L);
    UNROLL for (int r = 0; r < R; r++) {
      const T x = a[r * t.a0];
      UNROLL for (int v = 0; v < V; v++) sum[r][v] += x * row[v];
    }
  }
  UNROLL for (int r = 0; r < R; r++)
    UNROLL for (int v = 0; v < V; v++) {
      T* const to = t.c + r * t.c0 + v * L;
      if (v == V - 1) part.store(to, sum[r][v]);
      else store(to, sum[r][v]);
    }
}
enum { MOST_ROWS = 8, INNER = 128, FAR = 1024 };
constexpr int most_rows(int V) {
  const int fit = (REGISTERS - 2 - V) / V;
  return fit < MOST_ROWS ? fit : MOST_ROWS;
}
template <typename T, int V, int R = 1> static void multiply_rows(int rows, const Tile<T>& t) {
  if (rows == R) multiply<T, R, V>(t);
  else if constexpr (R < most_rows(V)) multiply_rows<T, V, R + 1>(rows, t);
}
template <typename T, int V = 1> static void multiply_panel(int vectors, i64 m, Tile<T> t) {
  if (vectors == V) {
    i64 tiles = (m + most_rows(V) - 1) / most_rows(V);
    for (; tiles > 0; tiles--) {
      const int rows = (int)((m + tiles - 1) / tiles);
      multiply_rows<T, V>(rows, t);
      t.a += rows * t.a0, t.c += rows * t.c0, m -= rows;
      if (t.start) t.start += rows * t.start_step;
      if (t.level) t.level += rows;
    }
  } else if constexpr (V < MOST_VECTORS) multiply_panel<T, V + 1>(vectors, m, t);
}

// The Fortran interface of a BLAS, whose matrices are column by column. Its whole numbers have 32 or 64 bits; these have
// 64, of which a little-endian processor finds the lower ones first.
template <typename T>
using Gemm = void (*)(const char*, const char*, const i64*, const i64*, const i64*, const T*, const T*, const i64*,
                      const T*, const i64*, const T*, T*, const i64*);
template <typename T> static Gemm<T> library_gemm = nullptr;
const double LARGE = 2e7;  // multiplications from which on a library's product is faster than this one

// C = start + A B. The two numbers behind A and B are the distances of their rows and of their columns; the rows of
// `start` are `start_step` apart; without it, each row of C begins with its number in `level`, or with zero.
template <typename T>
static void product(i64 m, i64 n, i64 k, const T* a, i64 a0, i64 a1, const T* b, i64 b0, i64 b1, T* c, i64 c0,
                    const T* start = nullptr, i64 start_step = 0, const T* level = nullptr) {
  if (library_gemm<T> && double(m) * double(n) * double(k) >= LARGE) {
    for (i64 r = 0; (start || level) && r < m; r++)
      for (i64 q = 0; q < n; q++) c[r * c0 + q] = start ? start[r * start_step + q] : level[r];
    const T one = 1, kept = start || level ? 1 : 0;
    const bool b_turned = b1 != 1, a_turned = a1 != 1;  // C' = B' A'
    library_gemm<T>(b_turned ? "T" : "N", a_turned ? "T" : "N", &n, &m, &k, &one, b, b_turned ? &b1 : &b0, a,
                    a_turned ? &a1 : &a0, &kept, c, &c0);
    return;
  }
  alignas(64) T packed[INNER * MOST_VECTORS * BYTES / sizeof(T)];
  const int L = lanes<T>;
  const i64 vectors = (n + L - 1) / L, panels = (vectors + MOST_VECTORS - 1) / MOST_VECTORS;
  for (i64 panel = 0, j = 0; panel < panels; panel++) {
    const int V = (int)(vectors / panels + (panel < vectors % panels));
    const i64 width = n - j < V * L ? n - j : V * L;
    for (i64 l = 0; l < k; l += INNER) {
      const i64 inner = k - l < INNER ? k - l : INNER;
      Tile<T> t = {a + l * a1, b + l * b0 + j, l ? c + j : start ? start + j : nullptr, level,
                   c + j, inner, a0, a1, b0, c0, l ? c0 : start_step, (int)(width - (V - 1) * L)};
      if (b1 != 1 || b0 > FAR) {
        pack(inner, width, b + l * b0 + j * b1, b0, b1, packed, V * L);
        t.b = packed, t.b0 = V * L;
      }
      multiply_panel<T>(V, m, t);
    }
    j += width;
  }
}

// The functions of activations, and their derivatives by their argument x and value y. NaN goes through as in torch.
template <int F, typename T> static inline T value_of(T x, T a, T b) {
  if constexpr (F == RELU) return x <= 0 ? 0 : x;
  if constexpr (F == LEAKY_RELU) return x > 0 ? x : x * a;
  if constexpr (F == ELU) return x > 0 ? x : a * exponential_minus_1(x);
  if constexpr (F == GELU) return x * T(0.5) * (1 + error_function(x * T(M_SQRT1_2)));
  if constexpr (F == GELU_TANH)
    return T(0.5) * x * (1 + hyperbolic_tangent(T(M_SQRT2 * M_2_SQRTPI * 0.5) * (x + T(0.044715) * x * x * x)));
  if constexpr (F == SILU) return x * sigmoid(x);
  if constexpr (F == SIGMOID) return sigmoid(x);
  if constexpr (F == TANH) return hyperbolic_tangent(x);
  if constexpr (F == SOFTPLUS) return x * a > b ? x : log_1_plus(exponential(x * a)) / a;
  if constexpr (F == HARDTANH) return x < a ? a : x > b ? b : x;
}
template <int F, typename T> static inline T slope_of(T x, T y, T a, T b) {
  if constexpr (F == RELU) return y <= 0 ? 0 : 1;
  if constexpr (F == LEAKY_RELU) return x > 0 ? 1 : a;
  if constexpr (F == ELU) return x > 0 ? 1 : a * exponential(x);
  if constexpr (F == GELU)
    return T(0.5) * (1 + error_function(x * T(M_SQRT1_2))) +
           x * exponential(T(-0.5) * x * x) * T(M_2_SQRTPI * M_SQRT1_2 * 0.5);
  if constexpr (F == GELU_TANH) {
    const T c = T(M_SQRT2 * M_2_SQRTPI * 0.5), t = hyperbolic_tangent(c * (x + T(0.044715) * x * x * x));
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * c * (1 + T(3 * 0.044715) * x * x);
  }
  if constexpr (F == SILU) {
    const T s = sigmoid(x);
    return s * (1 + x * (1 - s));
  }
  if constexpr (F == SIGMOID) return y * (1 - y);
  if constexpr (F == TANH) return 1 - y * y;
  if constexpr (F == SOFTPLUS) return x * a > b ? 1 : sigmoid(x * a);
  if constexpr (F == HARDTANH) return x <= a || x >= b ? 0 : 1;
}
template <int F, typename T> static void activate(const T* x, T* y, i64 n, T a, T b) {
#pragma omp simd
  for (i64 i = 0; i < n; i++) y[i] = value_of<F>(x[i], a, b);
}
template <int F, typename T> static void slope(const T* x, const T* y, T* d, i64 n, T a, T b) {
#pragma omp simd
  for (i64 i = 0; i < n; i++) d[i] *= slope_of<F>(x[i], y[i], a, b);
}
#define EVERY(DO) DO(RELU) DO(LEAKY_RELU) DO(ELU) DO(GELU) DO(GELU_TANH) DO(SILU) DO(SIGMOID) DO(TANH) DO(SOFTPLUS) DO(HARDTANH)
// Those whose slope follows from the value alone may overwrite their argument.
static bool needs_argument(const Layer& l) { return l.function != RELU && l.function != SIGMOID && l.function != TANH; }

// The buffers of one call, laid out one behind the other; measures them where there is no workspace.
struct Workspace {
  char* base;
  i64 used;
  template <typename T> T* take(i64 count) {
    T* const place = base ? (T*)(base + used) : nullptr;
    used += (count * (i64)sizeof(T) + 63) / 64 * 64;
    return place;
  }
};

// SOAP's steps on one parameter; its docstring in optim/soap.py has the formulas.
template <typename T> struct Soap {
  enum { BLOCK = 16 };
  i64 m, n, size, used;
  T *M, *V, *left, *left_basis, *right, *right_basis;
  T *one, *two, *three, *square, *reflectors, *line, *scales, *order;

  Soap(const Parameter& p, T* room) : m(p.rows), n(p.columns), size(p.count) {
    T** const places[] = {&M, &V, &left, &left_basis, &right, &right_basis};
    for (int i = 0; i < 6; i++) *places[i] = (T*)p.state[i];
    const i64 side = left && (m > n || !right) ? m : right ? n : 0;
    T** const rooms[] = {&one, &two, &three, &square, &reflectors, &line, &scales, &order};
    const i64 counts[] = {size, size, size, side * side, side * side, side, side, 2 * side};
    used = 0;
    for (int i = 0; i < 8; i++) {
      *rooms[i] = room ? room + used : nullptr;
      used += (counts[i] + 15) / 16 * 16;
    }
  }

  // Q_L' X Q_R, or Q_L X Q_R' on the way back; X itself where there are no bases.
  const T* rotated(const T* x, bool back) {
    if (left) {
      product<T>(m, n, m, left_basis, back ? m : 1, back ? 1 : m, x, n, 1, one, n);
      x = one;
    }
    if (right) {
      product<T>(m, n, n, x, n, 1, right_basis, back ? 1 : n, back ? n : 1, two, n);
      x = two;
    }
    return x;
  }

  void step(T* w, const T* d, const Group& g, double lr, double steps) {
    const T* const rotated_gradient = rotated(d, false);
    const double correction = std::sqrt(1 - std::pow(g.second, steps));
    const T beta1 = T(1 - g.first), beta2 = T(g.second), rest2 = T(1 - g.second), eps = T(g.eps * correction);
    const T rate = T(lr * correction / (1 - std::pow(g.first, steps))), shrink = T(1 - lr * g.weight_decay);
    T* const direction = three;
#pragma omp simd
    for (i64 i = 0; i < size; i++) {
      const T x = rotated_gradient[i], first = M[i] + beta1 * (x - M[i]), second = beta2 * V[i] + rest2 * x * x;
      M[i] = first, V[i] = second;
      direction[i] = first / (std::sqrt(second) + eps);
    }
    const T* const update = rotated(direction, true);
#pragma omp simd
    for (i64 i = 0; i < size; i++) w[i] = shrink * w[i] - rate * update[i];
    if (left) {
      for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < n; j++) one[j * m + i] = d[i * n + j];
      follow(left, m, n, d, n, 1, one, beta2, rest2);
    }
    if (right) follow(right, n, m, d, 1, n, d, beta2, rest2);
    if ((left || right) && (i64)steps % g.refresh_interval == 0) refresh();
  }

  // factor = beta factor + rest A B, which is symmetric: in blocks of rows, from the diagonal on. See `mirror`.
  void follow(T* factor, i64 k, i64 inner, const T* a, i64 a0, i64 a1, const T* b, T beta, T rest) {
    for (i64 i = 0; i < k; i += BLOCK) {
      const i64 rows = k - i < BLOCK ? k - i : BLOCK, width = k - i;
      product<T>(rows, width, inner, a + i * a0, a0, a1, b + i, k, 1, square, width);
      for (i64 r = 0; r < rows; r++) {
        T *const to = factor + (i + r) * k + i, *const from = square + r * width;
#pragma omp simd
        for (i64 j = 0; j < width; j++) to[j] = beta * to[j] + rest * from[j];
      }
    }
  }
  static void mirror(T* factor, i64 k) {
    for (i64 i = 0; i < k; i++)
      for (i64 j = 0; j < i; j++) factor[i * k + j] = factor[j * k + i];
  }
  void finish() {
    if (left) mirror(left, m);
    if (right) mirror(right, n);
  }

  void refresh() {
    finish();
    memcpy(three, rotated(M, true), size * sizeof(T));
    if (left) refresh_side(left, left_basis, m, true);
    if (right) refresh_side(right, right_basis, n, false);
    memcpy(M, rotated(three, false), size * sizeof(T));
  }

  // One step of orthogonal iteration, the columns ordered by what they explain; V follows the order.
  void refresh_side(const T* factor, T* basis, i64 k, bool rows) {
    T trace = 0;
    for (i64 i = 0; i < k; i++) trace += factor[i * k + i];
    const T least = is_float<T> ? T(1.17549435e-38) : T(2.2250738585072014e-308), scale = trace < least ? least : trace;
    for (i64 i = 0; i < k * k; i++) {
      const T x = factor[i] / scale;
      square[i] = x - x == 0 ? x : 0;
    }
    product<T>(k, k, k, square, k, 1, basis, k, 1, reflectors, k);
    for (i64 j = 0; j < k; j++) scales[j] = 0;
    for (i64 i = 0; i < k; i++)
      for (i64 j = 0; j < k; j++) scales[j] += basis[i * k + j] * reflectors[i * k + j];
    i64* const kept = (i64*)order;
    for (i64 j = 0; j < k; j++) {
      i64 place = j;
      for (; place > 0 && scales[kept[place - 1]] < scales[j]; place--) kept[place] = kept[place - 1];
      kept[place] = j;
    }
    for (i64 i = 0; i < k; i++)
      for (i64 j = 0; j < k; j++) square[i * k + j] = reflectors[i * k + kept[j]];
    T* const ordered = one;
    for (i64 i = 0; i < m; i++)
      for (i64 j = 0; j < n; j++) ordered[i * n + j] = V[rows ? kept[i] * n + j : i * n + kept[j]];
    memcpy(V, ordered, size * sizeof(T));
    orthogonal(basis, k);
    bool any = false;
    for (i64 i = 0; i < k; i++) any |= factor[i * k + i] != 0;
    for (i64 i = 0; any && i < k; i++)
      if (factor[i * k + i] == 0) memset(basis + i * k, 0, k * sizeof(T));
  }

  // The Q of `square` = Q R, by Householder reflections I - scale v v'; columns of zeros give columns of the identity.
  void orthogonal(T* q, i64 k) {
    for (i64 c = 0; c < k; c++) {
      T* const v = reflectors + c * k;
      double below = 0;
      for (i64 i = c; i < k; i++) v[i] = square[i * k + c];
      for (i64 i = c + 1; i < k; i++) below += (double)v[i] * (double)v[i];
      scales[c] = 0;
      if (below == 0) continue;
      const double top = (double)v[c], length = std::sqrt(top * top + below), beta = top > 0 ? -length : length;
      scales[c] = T((beta - top) / beta);
      const T divisor = T(top - beta);
      for (i64 i = c + 1; i < k; i++) v[i] /= divisor;
      v[c] = 1;
      reflect(square, c, c + 1, k);
    }
    memset(q, 0, k * k * sizeof(T));
    for (i64 c = k - 1; c >= 0; c--) {
      q[c * k + c] = 1;
      if (scales[c] != 0) reflect(q, c, c, k);
    }
  }
  // Rows from c on, columns from `first` on.
  void reflect(T* a, i64 c, i64 first, i64 k) {
    const T *const v = reflectors + c * k + c;
    T* const part = a + c * k + first;
    const i64 height = k - c, width = k - first;
    if (width == 0) return;
    product<T>(1, width, height, v, 0, 1, part, k, 1, line, width);
    for (i64 j = 0; j < width; j++) line[j] *= -scales[c];
    product<T>(height, width, 1, v, 1, 0, line, width, 1, part, k, part, k);
  }
};

template <typename T> struct Network {
  const Job& job;
  i64 most_samples, used, lowest;  // rows of a batch; bytes of the workspace; the first layer that trains
  i64 turned, line;                // outputs of the layers before `turned` have a line of this length per number
  double counted;                  // samples, or the sum of their weights, behind the last mean loss
  T *x, *target, *delta, *spare, *sums;
  i64 *indices, *labels;
  T **values, **statistics, **gradients, **scratch;

  Network(const Job& job, char* base) : job(job) {
    Workspace w = {base, 0};
    most_samples = job.batch_size < job.rows_count ? job.batch_size : job.rows_count;
    values = w.take<T*>(job.layers_count), statistics = w.take<T*>(job.layers_count);
    gradients = w.take<T*>(job.parameters_count), scratch = w.take<T*>(job.parameters_count);
    const bool embeds = job.layers[0].kind == EMBEDDING, classes = job.loss == CROSS_ENTROPY;
    const i64 gathered = job.rows ? most_samples : 0;
    x = w.take<T>(embeds ? 0 : gathered * job.input_size);
    indices = w.take<i64>(embeds ? gathered * job.input_size : 0);
    target = w.take<T>(classes ? 0 : gathered * job.target_size);
    labels = w.take<i64>(classes ? gathered : 0);
    i64 widest = 1, most = 1;
    turned = last_turned(), line = turned ? (most_samples + 15) / 16 * 16 + 16 : most_samples;
    lowest = job.layers_count;
    for (i64 i = job.layers_count - 1; i >= 0; i--)
      if (trains(job.layers[i].weight) || trains(job.layers[i].bias)) lowest = i;
    for (i64 i = 0; i < job.layers_count; i++) {
      const Layer& l = job.layers[i];
      const i64 lines = most_samples * l.rows, wider = l.inputs > l.outputs ? l.inputs : l.outputs;
      T* const value = in_place(i) ? values_at(i - 1) : w.take<T>(job.rows ? lines * l.outputs : 0);
      T* const statistic = w.take<T>(l.kind == BATCH_NORM ? 2 * l.outputs : l.kind == LAYER_NORM ? 2 * lines : 0);
      if (base) values[i] = value, statistics[i] = statistic;
      if (line * l.rows * wider > most) most = line * l.rows * wider;
      if (wider > widest) widest = wider;
    }
    delta = w.take<T>(most), spare = w.take<T>(most), sums = w.take<T>(2 * widest);
    if (!job.rows) {  // nothing goes back, so that two buffers serve all layers
      T *now = w.take<T>(most), *next = w.take<T>(most), *before;
      for (i64 i = 0; base && i < job.layers_count; i++) {
        if (!in_place(i)) before = now, now = next, next = before;
        values[i] = now;
      }
    }
    for (i64 i = 0; i < job.parameters_count; i++) {
      T* const gradient = w.take<T>(trains(i) ? job.parameters[i].count : 0);
      T* const room = w.take<T>(job.method == SOAP && trains(i) ? Soap<T>(job.parameters[i], nullptr).used : 0);
      if (base) gradients[i] = gradient, scratch[i] = room;
    }
    used = w.used;
  }

  // Evaluations of linear layers and activations run with the samples side by side, until the last linear layer turns
  // them back: whole vectors of samples whatever the width of a layer, and no weights to pack. Lines of an odd number
  // of vectors do not compete for the same part of the cache.
  i64 last_turned() const {
    i64 last = 0;
    for (i64 i = 0; i < job.layers_count; i++) {
      const Layer& l = job.layers[i];
      if (job.rows || l.rows != 1 || (l.kind != LINEAR && (l.kind != ACTIVATION || i == 0))) return 0;
      if (l.kind == LINEAR) last = i;
    }
    return last;
  }
  T* values_at(i64 i) const { return values ? values[i] : nullptr; }
  bool trains(i64 parameter) const { return parameter >= 0 && job.parameters[parameter].group >= 0; }
  T* gradient(i64 parameter) const { return trains(parameter) ? gradients[parameter] : nullptr; }
  const T* parameter(i64 place) const { return place < 0 ? nullptr : (const T*)job.parameters[place].value; }
  const T* input(i64 i) const { return i ? values[i - 1] : x; }
  bool in_place(i64 i) const {
    const Layer& l = job.layers[i];
    if (i == 0 || l.kind != ACTIVATION) return false;
    if (!job.rows) return true;
    if (needs_argument(l)) return false;
    const i64 before = job.layers[i - 1].kind;
    return before != ACTIVATION && before != DROPOUT;
  }

  void gather(const i64* rows, i64 count) {
    const bool embeds = job.layers[0].kind == EMBEDDING;
    for (i64 i = 0; i < count; i++) {
      const i64 from = rows[i] * job.input_size, to = i * job.input_size;
      if (embeds) memcpy(indices + to, (const i64*)job.inputs + from, job.input_size * sizeof(i64));
      else memcpy(x + to, (const T*)job.inputs + from, job.input_size * sizeof(T));
      if (job.loss == CROSS_ENTROPY) labels[i] = ((const i64*)job.targets)[rows[i]];
      else memcpy(target + i * job.target_size, (const T*)job.targets + rows[i] * job.target_size,
                  job.target_size * sizeof(T));
    }
  }

  void view(i64 begin) {
    x = (T*)job.inputs + begin * job.input_size, indices = (i64*)job.inputs + begin * job.input_size;
    target = (T*)job.targets + begin * job.target_size, labels = (i64*)job.targets + begin;
  }

  void forward(i64 i, i64 batch) {
    const Layer& l = job.layers[i];
    const i64 lines = batch * l.rows, n = lines * l.outputs;
    const T *const in = input(i), *const weight = parameter(l.weight), *const bias = parameter(l.bias);
    T* const out = values[i];
    switch (l.kind) {
      case LINEAR: {
        const bool is_turned = turned && i;
        if (i < turned)
          return product<T>(l.outputs, lines, l.inputs, weight, l.inputs, 1, in, i ? line : 1, i ? 1 : l.inputs, out,
                            line, nullptr, 0, bias);
        return product<T>(lines, l.outputs, l.inputs, in, is_turned ? 1 : l.inputs, is_turned ? line : 1, weight, 1,
                          l.inputs, out, l.outputs, bias);
      }
      case EMBEDDING:
        for (i64 r = 0; r < lines; r++) memcpy(out + r * l.outputs, weight + indices[r] * l.outputs, l.outputs * sizeof(T));
        return;
      case ACTIVATION:
        for (i64 r = 0, size = i < turned ? lines : n; r * size < n; r++) {
          const T* const from = in + r * line;
          T* const to = out + r * line;
#define CASE(F) case F: activate<F, T>(from, to, size, T(l.a), T(l.b)); break;
          switch (l.function) { EVERY(CASE) }
#undef CASE
        }
        return;
      case DROPOUT: {
        const T *const mask = (const T*)l.mask, scale = T(l.a);
#pragma omp simd
        for (i64 k = 0; k < n; k++) out[k] = in[k] * (mask[k] * scale);
        return;
      }
      case BATCH_NORM: return batch_norm(l, in, out, statistics[i], lines, weight, bias);
      case LAYER_NORM: return layer_norm(l, in, out, statistics[i], lines, weight, bias);
    }
  }

  void batch_norm(const Layer& l, const T* in, T* out, T* mean, i64 lines, const T* weight, const T* bias) {
    const i64 width = l.outputs;
    T *const running_mean = (T*)l.mean, *const running_variance = (T*)l.variance, *const scale = mean + width;
    if (!l.flag) {
      for (i64 j = 0; j < width; j++) mean[j] = running_mean[j], scale[j] = 1 / std::sqrt(running_variance[j] + T(l.a));
    } else {
      for (i64 j = 0; j < 2 * width; j++) mean[j] = 0;
      for (i64 r = 0; r < lines; r++)
        for (i64 j = 0; j < width; j++) mean[j] += in[r * width + j];
      for (i64 j = 0; j < width; j++) mean[j] /= T(lines);
      for (i64 r = 0; r < lines; r++)
        for (i64 j = 0; j < width; j++) scale[j] += (in[r * width + j] - mean[j]) * (in[r * width + j] - mean[j]);
      if (running_mean) {
        const double momentum = l.b < 0 ? 1 / double(++*l.tracked) : (l.tracked ? (void)++*l.tracked : (void)0, l.b);
        const T m = T(momentum);
        for (i64 j = 0; j < width; j++) {
          running_mean[j] = m * mean[j] + (1 - m) * running_mean[j];
          running_variance[j] = m * (scale[j] / T(lines - 1)) + (1 - m) * running_variance[j];
        }
      }
      for (i64 j = 0; j < width; j++) scale[j] = 1 / std::sqrt(scale[j] / T(lines) + T(l.a));
    }
    for (i64 j = 0; j < width; j++) sums[j] = weight ? scale[j] * weight[j] : scale[j];
    for (i64 j = 0; j < width; j++) sums[width + j] = (bias ? bias[j] : 0) - mean[j] * sums[j];
    for (i64 r = 0; r < lines; r++)
      for (i64 j = 0; j < width; j++) out[r * width + j] = in[r * width + j] * sums[j] + sums[width + j];
  }

  void layer_norm(const Layer& l, const T* in, T* out, T* statistic, i64 lines, const T* weight, const T* bias) {
    const i64 width = l.outputs;
    for (i64 r = 0; r < lines; r++, in += width, out += width) {
      T mean = 0, variance = 0;
#pragma omp simd reduction(+ : mean)
      for (i64 j = 0; j < width; j++) mean += in[j];
      mean /= T(width);
#pragma omp simd reduction(+ : variance)
      for (i64 j = 0; j < width; j++) variance += (in[j] - mean) * (in[j] - mean);
      const T scale = 1 / std::sqrt(variance / T(width) + T(l.a));
      statistic[2 * r] = mean, statistic[2 * r + 1] = scale;
      for (i64 j = 0; j < width; j++) out[j] = (in[j] - mean) * scale * (weight ? weight[j] : 1) + (bias ? bias[j] : 0);
    }
  }

  // From `delta`, the gradient by the output of layer i, to that by its input; gradients of its parameters beside it.
  void backward(i64 i, i64 batch) {
    const Layer& l = job.layers[i];
    const i64 lines = batch * l.rows, n = lines * l.outputs;
    const bool goes_on = i > lowest;
    const T* const in = l.kind == EMBEDDING ? nullptr : input(i);
    T *const by_weight = gradient(l.weight), *const by_bias = gradient(l.bias);
    switch (l.kind) {
      case LINEAR: {
        const T one = 1;
        if (by_weight)
          product<T>(l.outputs, l.inputs, lines, delta, 1, l.outputs, in, l.inputs, 1, by_weight, l.inputs);
        if (by_bias) product<T>(1, l.outputs, lines, &one, 0, 0, delta, l.outputs, 1, by_bias, l.outputs);
        if (!goes_on) return;
        product<T>(lines, l.inputs, l.outputs, delta, l.outputs, 1, parameter(l.weight), l.inputs, 1, spare, l.inputs);
        return swap();
      }
      case EMBEDDING:
        memset(by_weight, 0, job.parameters[l.weight].count * sizeof(T));
        for (i64 r = 0; r < lines; r++)
          if (indices[r] != l.flag)
            for (i64 j = 0; j < l.outputs; j++) by_weight[indices[r] * l.outputs + j] += delta[r * l.outputs + j];
        return;
      case ACTIVATION:
#define CASE(F) case F: return slope<F, T>(in, values[i], delta, n, T(l.a), T(l.b));
        switch (l.function) { EVERY(CASE) }
#undef CASE
        return;
      case DROPOUT: {
        const T *const mask = (const T*)l.mask, scale = T(l.a);
#pragma omp simd
        for (i64 k = 0; k < n; k++) delta[k] *= mask[k] * scale;
        return;
      }
      case BATCH_NORM: return batch_norm_backward(l, in, statistics[i], lines, by_weight, by_bias);
      case LAYER_NORM: return layer_norm_backward(l, in, statistics[i], lines, by_weight, by_bias);
    }
  }
  void swap() {
    T* const before = delta;
    delta = spare, spare = before;
  }

  void batch_norm_backward(const Layer& l, const T* in, const T* mean, i64 lines, T* by_weight, T* by_bias) {
    const i64 width = l.outputs;
    const T *const scale = mean + width, *const weight = parameter(l.weight), count = T(lines);
    T *const plain = sums, *const along = sums + width;
    for (i64 j = 0; j < 2 * width; j++) sums[j] = 0;
    for (i64 r = 0; r < lines; r++)
      for (i64 j = 0; j < width; j++) {
        plain[j] += delta[r * width + j];
        along[j] += delta[r * width + j] * (in[r * width + j] - mean[j]) * scale[j];
      }
    if (by_weight) memcpy(by_weight, along, width * sizeof(T));
    if (by_bias) memcpy(by_bias, plain, width * sizeof(T));
    for (i64 r = 0; r < lines; r++)
      for (i64 j = 0; j < width; j++) {
        T& d = delta[r * width + j];
        if (l.flag) d -= (plain[j] + (in[r * width + j] - mean[j]) * scale[j] * along[j]) / count;
        d *= scale[j] * (weight ? weight[j] : 1);
      }
  }

  void layer_norm_backward(const Layer& l, const T* in, const T* statistic, i64 lines, T* by_weight, T* by_bias) {
    const i64 width = l.outputs;
    const T* const weight = parameter(l.weight);
    if (by_weight) memset(by_weight, 0, width * sizeof(T));
    if (by_bias) memset(by_bias, 0, width * sizeof(T));
    T* d = delta;
    for (i64 r = 0; r < lines; r++, in += width, d += width) {
      const T mean = statistic[2 * r], scale = statistic[2 * r + 1];
      T plain = 0, along = 0;
      if (by_weight)
        for (i64 j = 0; j < width; j++) by_weight[j] += d[j] * (in[j] - mean) * scale;
      if (by_bias)
        for (i64 j = 0; j < width; j++) by_bias[j] += d[j];
      if (weight)
        for (i64 j = 0; j < width; j++) d[j] *= weight[j];
#pragma omp simd reduction(+ : plain, along)
      for (i64 j = 0; j < width; j++) plain += d[j], along += d[j] * (in[j] - mean) * scale;
      plain /= T(width), along /= T(width);
      for (i64 j = 0; j < width; j++) d[j] = scale * (d[j] - plain - (in[j] - mean) * scale * along);
    }
  }

  // The mean loss of the batch; its gradient by the output goes to `delta`.
  double loss(i64 batch) {
    const T* const out = values[job.layers_count - 1];
    if (job.loss == CROSS_ENTROPY) return cross_entropy(out, batch);
    counted = double(batch);
    const i64 n = batch * job.target_size;
    const T share = 1 / T(n);
    const T *const weight = (const T*)job.loss_weight, *const positive = (const T*)job.positive_weight;
    double total = 0;
    switch (job.loss) {
      case MSE:
#pragma omp simd reduction(+ : total)
        for (i64 i = 0; i < n; i++) {
          const T e = out[i] - target[i];
          delta[i] = 2 * e * share;
          total += (double)(e * e);
        }
        break;
      case L1:
#pragma omp simd reduction(+ : total)
        for (i64 i = 0; i < n; i++) {
          const T e = out[i] - target[i];
          delta[i] = e > 0 ? share : e < 0 ? -share : e * share;
          total += (double)std::fabs(e);
        }
        break;
      case BCE:
        for (i64 r = 0; r < batch; r++) {
          const i64 at = r * job.target_size;
#pragma omp simd reduction(+ : total)
          for (i64 j = 0; j < job.target_size; j++) {
            const T z = out[at + j], y = target[at + j];
            const T own = weight ? weight[j] : 1, log_weight = positive ? 1 + (positive[j] - 1) * y : 1;
            const T tail = log_1_plus(exponential(-std::fabs(z))) + (z < 0 ? -z : 0);
            total += (double)(own * ((1 - y) * z + log_weight * tail));
            delta[at + j] = own * ((1 - y) + log_weight * (sigmoid(z) - 1)) * share;
          }
        }
    }
    return total / (double)n;
  }

  double cross_entropy(const T* out, i64 batch) {
    const i64 classes = job.target_size;
    const T *const weight = (const T*)job.loss_weight, smoothing = T(job.smoothing);
    double total = 0, weights = 0, all = 0;
    for (i64 j = 0; j < classes; j++) all += weight ? (double)weight[j] : 1;
    for (i64 r = 0; r < batch; r++) {
      const T* const line = out + r * classes;
      T most = line[0];
      for (i64 j = 1; j < classes; j++) most = line[j] > most || line[j] != line[j] ? line[j] : most;
      for (i64 j = 0; j < classes; j++) delta[r * classes + j] = line[j] - most;
      if (labels[r] != job.ignored) weights += weight ? (double)weight[labels[r]] : 1;
    }
#pragma omp simd
    for (i64 i = 0; i < batch * classes; i++) spare[i] = exponential(delta[i]);
    for (i64 r = 0; r < batch; r++) {
      T *const d = delta + r * classes, *const e = spare + r * classes, sum = 0;
      const i64 label = labels[r];
      if (label == job.ignored) {
        memset(d, 0, classes * sizeof(T));
        continue;
      }
      for (i64 j = 0; j < classes; j++) sum += e[j];
      const T own = weight ? weight[label] : 1, log_sum = std::log(sum), each = smoothing / T(classes);
      T smooth = 0;
      if (each)
        for (i64 j = 0; j < classes; j++) smooth += (weight ? weight[j] : 1) * (log_sum - d[j]);
      total += (double)((1 - smoothing) * own * (log_sum - d[label]) + each * smooth);
      const T whole = (1 - smoothing) * own + each * T(all);
      for (i64 j = 0; j < classes; j++) {
        const T hit = (j == label ? (1 - smoothing) * own : 0) + each * (weight ? weight[j] : 1);
        d[j] = (whole * e[j] / sum - hit) / T(weights);
      }
    }
    counted = weights;
    return total / weights;
  }

  // One step on every trained parameter; returns what weight decay adds to the loss under plain gradient steps.
  double step(i64 number, double factor) {
    double penalty = 0;
    for (i64 i = 0; i < job.parameters_count; i++) {
      if (!trains(i)) continue;
      const Parameter& p = job.parameters[i];
      const Group& g = job.groups[p.group];
      T *const w = (T*)p.value, *const d = gradients[i], *const first = (T*)p.state[0], *const second = (T*)p.state[1];
      const double lr = g.lr * factor;
      switch (job.method) {
        case GRADIENT: penalty += gradient_step(w, d, p.count, T(lr), T(g.weight_decay)); break;
        case SGD: sgd_step(w, d, first, p.count, g, T(lr), p.fresh && number == 0); break;
        case ADAM: adam_step(w, d, first, second, p.count, g, lr, p.steps + double(number) + 1); break;
        case SOAP: Soap<T>(p, scratch[i]).step(w, d, g, lr, p.steps + double(number) + 1); break;
        case ADAGRAD: adagrad_step(w, d, first, p.count, g, T(lr / (1 + (p.steps + double(number)) * g.first))); break;
        case ADADELTA: adadelta_step(w, d, first, second, p.count, g, T(lr)); break;
      }
    }
    return penalty;
  }

  static double gradient_step(T* w, const T* d, i64 n, T lr, T decay) {
    if (decay == 0) {
      if (lr == 0) return 0;
#pragma omp simd
      for (i64 i = 0; i < n; i++) w[i] -= lr * d[i];
      return 0;
    }
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (i64 i = 0; i < n; i++) squares += (double)w[i] * (double)w[i];
    if (lr != 0) {
#pragma omp simd
      for (i64 i = 0; i < n; i++) w[i] -= lr * (d[i] + decay * w[i]);
    }
    return 0.5 * (double)decay * squares;
  }

  static void sgd_step(T* w, const T* d, T* buffer, i64 n, const Group& g, T lr, bool fresh) {
    const T decay = T(g.weight_decay), momentum = T(g.first), kept = T(1 - g.second);
    if (!buffer) {
#pragma omp simd
      for (i64 i = 0; i < n; i++) w[i] -= lr * (d[i] + decay * w[i]);
      return;
    }
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
      const T own = d[i] + decay * w[i], moved = fresh ? own : momentum * buffer[i] + kept * own;
      buffer[i] = moved;
      w[i] -= lr * (g.flag ? own + momentum * moved : moved);
    }
  }

  static void adam_step(T* w, const T* d, T* first, T* second, i64 n, const Group& g, double lr, double steps) {
    const T decay = g.flag ? 0 : T(g.weight_decay), shrink = g.flag ? T(1 - lr * g.weight_decay) : 1;
    const T beta1 = T(1 - g.first), beta2 = T(g.second), rest2 = T(1 - g.second), eps = T(g.eps);
    const T size = T(lr / (1 - std::pow(g.first, steps))), root = T(1 / std::sqrt(1 - std::pow(g.second, steps)));
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
      const T own = d[i] + decay * w[i], m = first[i] + beta1 * (own - first[i]), v = beta2 * second[i] + rest2 * own * own;
      first[i] = m, second[i] = v;
      w[i] = shrink * w[i] - size * m / (std::sqrt(v) * root + eps);
    }
  }

  static void adagrad_step(T* w, const T* d, T* sum, i64 n, const Group& g, T lr) {
    const T decay = T(g.weight_decay), eps = T(g.eps);
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
      const T own = d[i] + decay * w[i], v = sum[i] + own * own;
      sum[i] = v;
      w[i] -= lr * own / (std::sqrt(v) + eps);
    }
  }

  static void adadelta_step(T* w, const T* d, T* squares, T* moves, i64 n, const Group& g, T lr) {
    const T decay = T(g.weight_decay), rho = T(g.first), rest = T(1 - g.first), eps = T(g.eps);
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
      const T own = d[i] + decay * w[i], v = rho * squares[i] + rest * own * own;
      const T move = std::sqrt((moves[i] + eps) / (v + eps)) * own;
      squares[i] = v, moves[i] = rho * moves[i] + rest * move * move;
      w[i] -= lr * move;
    }
  }

  void run() {
    for (i64 s = 0; s < job.steps; s++) {
      const i64 begin = (job.first_step + s) * job.batch_size, left = job.rows_count - begin;
      const i64 batch = left < job.batch_size ? left : job.batch_size;
      if (job.rows) gather(job.rows + begin, batch);
      else view(begin);
      for (i64 i = 0; i < job.layers_count; i++) forward(i, batch);
      const double value = loss(batch);
      if (!job.rows) {
        const i64 size = job.target_size;
        if (job.outputs) memcpy((T*)job.outputs + begin * size, values[job.layers_count - 1], batch * size * sizeof(T));
        job.losses[s] = value, job.counts[s] = counted;
        continue;
      }
      for (i64 i = job.layers_count - 1; i >= lowest; i--) backward(i, batch);
      job.losses[s] = value + step(s, job.factors[s]);
    }
    for (i64 i = 0; job.rows && job.method == SOAP && i < job.parameters_count; i++)
      if (trains(i)) Soap<T>(job.parameters[i], scratch[i]).finish();
  }
};

// Numbers too small for full precision (below 1e-38, or 1e-307) are zero during a call: gradients that vanish in deep
// networks would make it up to 25 times as slow.
struct WithoutSubnormals {
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  WithoutSubnormals() { _mm_setcsr(before | 0x8040); }  // flush results, and take operands as zero
  ~WithoutSubnormals() { _mm_setcsr(before); }
#endif
};

extern "C" {
// From now on, large products are those of a library; null for none.
void cmalight_use(Gemm<float> of_floats, Gemm<double> of_doubles) {
  library_gemm<float> = of_floats, library_gemm<double> = of_doubles;
}

i64 cmalight_workspace(const Job* job) {
  return job->is_double ? Network<double>(*job, nullptr).used : Network<float>(*job, nullptr).used;
}

// 0, or what is out of range in the batches that are to be run: 1 a row, 2 a label, 3 an index of an embedding.
i64 cmalight_check(const Job* job) {
  const i64 begin = job->first_step * job->batch_size, end = begin + job->steps * job->batch_size;
  const Layer& first = job->layers[0];
  const i64 entries = first.kind == EMBEDDING ? job->parameters[first.weight].rows : 0;
  for (i64 i = begin; i < end && i < job->rows_count; i++) {
    const i64 row = job->rows ? job->rows[i] : i;
    if (row < 0 || row >= job->samples) return 1;
    if (job->loss == CROSS_ENTROPY) {
      const i64 label = ((const i64*)job->targets)[row];
      if (label != job->ignored && (label < 0 || label >= job->target_size)) return 2;
    }
    for (i64 j = 0; entries && j < job->input_size; j++) {
      const i64 index = ((const i64*)job->inputs)[row * job->input_size + j];
      if (index < 0 || index >= entries) return 3;
    }
  }
  return 0;
}

i64 cmalight_run(const Job* job) {
  const i64 wrong = cmalight_check(job);
  if (wrong) return wrong;
  const WithoutSubnormals during;
  if (job->is_double) Network<double>(*job, job->workspace).run();
  else Network<float>(*job, job->workspace).run();
  return 0;
}
}
