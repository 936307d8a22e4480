;; C <- C + alpha A B^T in float64: the one product that all linear algebra of the learner is made of.
;; `linear.js` holds this module as text, which `node tests/web/cases.mjs kernel` prints.
(module
  (memory (export "memory") 1)

  ;; The sum of both numbers of a vector.
  (func $sum (param $x v128) (result f64)
    (f64.add (f64x2.extract_lane 0 (local.get $x)) (f64x2.extract_lane 1 (local.get $x))))

  ;; c <- c + alpha x
  (func $add (param $c i32) (param $alpha f64) (param $x v128)
    (f64.store (local.get $c)
      (f64.add (f64.load (local.get $c)) (f64.mul (local.get $alpha) (call $sum (local.get $x))))))

  ;; c <- c + alpha a b^T for two rows of `length` bytes, a multiple of 16
  (func $row (param $c i32) (param $alpha f64) (param $a i32) (param $b i32) (param $length i32)
    (local $end i32) (local $x v128)
    (local.set $end (i32.add (local.get $a) (local.get $length)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $a) (local.get $end)))
        (local.set $x (f64x2.add (local.get $x)
          (f64x2.mul (v128.load (local.get $a)) (v128.load (local.get $b)))))
        (local.set $a (i32.add (local.get $a) (i32.const 16)))
        (local.set $b (i32.add (local.get $b) (i32.const 16)))
        (br $next)))
    (call $add (local.get $c) (local.get $alpha) (local.get $x)))

  ;; The same for four rows of A and two of B, which share what they load.
  (func $block (param $c i32) (param $c_step i32) (param $alpha f64)
    (param $a i32) (param $a_step i32) (param $b i32) (param $b_step i32) (param $length i32)
    (local $end i32) (local $p i32) (local $q i32) (local $r i32) (local $d i32)
    (local $u v128) (local $v v128) (local $x v128)
    (local $a0 v128) (local $a1 v128) (local $b0 v128) (local $b1 v128)
    (local $c0 v128) (local $c1 v128) (local $d0 v128) (local $d1 v128)
    (local.set $end (i32.add (local.get $a) (local.get $length)))
    (local.set $p (i32.add (local.get $a) (local.get $a_step)))
    (local.set $q (i32.add (local.get $p) (local.get $a_step)))
    (local.set $r (i32.add (local.get $q) (local.get $a_step)))
    (local.set $d (i32.add (local.get $b) (local.get $b_step)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $a) (local.get $end)))
        (local.set $u (v128.load (local.get $b)))
        (local.set $v (v128.load (local.get $d)))
        (local.set $x (v128.load (local.get $a)))
        (local.set $a0 (f64x2.add (local.get $a0) (f64x2.mul (local.get $x) (local.get $u))))
        (local.set $a1 (f64x2.add (local.get $a1) (f64x2.mul (local.get $x) (local.get $v))))
        (local.set $x (v128.load (local.get $p)))
        (local.set $b0 (f64x2.add (local.get $b0) (f64x2.mul (local.get $x) (local.get $u))))
        (local.set $b1 (f64x2.add (local.get $b1) (f64x2.mul (local.get $x) (local.get $v))))
        (local.set $x (v128.load (local.get $q)))
        (local.set $c0 (f64x2.add (local.get $c0) (f64x2.mul (local.get $x) (local.get $u))))
        (local.set $c1 (f64x2.add (local.get $c1) (f64x2.mul (local.get $x) (local.get $v))))
        (local.set $x (v128.load (local.get $r)))
        (local.set $d0 (f64x2.add (local.get $d0) (f64x2.mul (local.get $x) (local.get $u))))
        (local.set $d1 (f64x2.add (local.get $d1) (f64x2.mul (local.get $x) (local.get $v))))
        (local.set $a (i32.add (local.get $a) (i32.const 16)))
        (local.set $p (i32.add (local.get $p) (i32.const 16)))
        (local.set $q (i32.add (local.get $q) (i32.const 16)))
        (local.set $r (i32.add (local.get $r) (i32.const 16)))
        (local.set $b (i32.add (local.get $b) (i32.const 16)))
        (local.set $d (i32.add (local.get $d) (i32.const 16)))
        (br $next)))
    (call $add (local.get $c) (local.get $alpha) (local.get $a0))
    (call $add (i32.add (local.get $c) (i32.const 8)) (local.get $alpha) (local.get $a1))
    (local.set $c (i32.add (local.get $c) (local.get $c_step)))
    (call $add (local.get $c) (local.get $alpha) (local.get $b0))
    (call $add (i32.add (local.get $c) (i32.const 8)) (local.get $alpha) (local.get $b1))
    (local.set $c (i32.add (local.get $c) (local.get $c_step)))
    (call $add (local.get $c) (local.get $alpha) (local.get $c0))
    (call $add (i32.add (local.get $c) (i32.const 8)) (local.get $alpha) (local.get $c1))
    (local.set $c (i32.add (local.get $c) (local.get $c_step)))
    (call $add (local.get $c) (local.get $alpha) (local.get $d0))
    (call $add (i32.add (local.get $c) (i32.const 8)) (local.get $alpha) (local.get $d1)))

  ;; A has m rows and B has n; rows are `a_step`, `b_step`, `c_step` bytes apart. The rows of A and B
  ;; have `length` bytes, a multiple of 16: two numbers at least, the last one 0 if their number is odd.
  (func (export "addProduct") (param $c i32) (param $c_step i32) (param $alpha f64)
    (param $a i32) (param $a_step i32) (param $m i32)
    (param $b i32) (param $b_step i32) (param $n i32) (param $length i32)
    (local $i i32) (local $j i32) (local $row i32) (local $at i32) (local $rows i32)
    (block $done
      (loop $next_rows
        (br_if $done (i32.ge_u (local.get $i) (local.get $m)))
        (local.set $rows (i32.const 4))
        (if (i32.gt_u (i32.add (local.get $i) (i32.const 4)) (local.get $m))
          (then (local.set $rows (i32.const 1))))
        (local.set $row (local.get $b))
        (local.set $at (local.get $c))
        (local.set $j (i32.const 0))
        (block $full
          (loop $next
            (br_if $full (i32.ge_u (local.get $j) (local.get $n)))
            (if (i32.and (i32.eq (local.get $rows) (i32.const 4))
                (i32.le_u (i32.add (local.get $j) (i32.const 2)) (local.get $n)))
              (then
                (call $block (local.get $at) (local.get $c_step) (local.get $alpha)
                  (local.get $a) (local.get $a_step)
                  (local.get $row) (local.get $b_step) (local.get $length))
                (local.set $j (i32.add (local.get $j) (i32.const 2)))
                (local.set $at (i32.add (local.get $at) (i32.const 16)))
                (local.set $row (i32.add (local.get $row) (i32.shl (local.get $b_step) (i32.const 1)))))
              (else
                (call $row (local.get $at) (local.get $alpha) (local.get $a) (local.get $row) (local.get $length))
                (if (i32.eq (local.get $rows) (i32.const 4)) (then
                  (call $row (i32.add (local.get $at) (local.get $c_step)) (local.get $alpha)
                    (i32.add (local.get $a) (local.get $a_step)) (local.get $row) (local.get $length))
                  (call $row (i32.add (local.get $at) (i32.mul (local.get $c_step) (i32.const 2))) (local.get $alpha)
                    (i32.add (local.get $a) (i32.mul (local.get $a_step) (i32.const 2))) (local.get $row) (local.get $length))
                  (call $row (i32.add (local.get $at) (i32.mul (local.get $c_step) (i32.const 3))) (local.get $alpha)
                    (i32.add (local.get $a) (i32.mul (local.get $a_step) (i32.const 3))) (local.get $row) (local.get $length))))
                (local.set $j (i32.add (local.get $j) (i32.const 1)))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (local.set $row (i32.add (local.get $row) (local.get $b_step)))))
            (br $next)))
        (local.set $i (i32.add (local.get $i) (local.get $rows)))
        (local.set $a (i32.add (local.get $a) (i32.mul (local.get $a_step) (local.get $rows))))
        (local.set $c (i32.add (local.get $c) (i32.mul (local.get $c_step) (local.get $rows))))
        (br $next_rows)))))
