"""Tensors of PyTorch on a GPU; skipped where there is none."""

import unittest

import warploom

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None or not torch.cuda.is_available(), "no PyTorch with a GPU")
class Torch(unittest.TestCase):
    def setUp(self):
        major, minor = torch.cuda.get_device_capability()
        self.target = "sm_90a" if (major, minor) == (9, 0) else "sm_80"
        torch.manual_seed(1)

    def product(self, dtype):
        """Whole numbers, so that every order of the sums gives the same bits."""
        return [torch.randint(-3, 4, (256, 256), device="cuda").to(dtype) for _ in range(2)]

    def test_products_are_those_of_torch(self):
        for name, dtype in [("f16", torch.float16), ("bf16", torch.bfloat16)]:
            a, b = self.product(dtype)
            c = torch.empty(256, 256, device="cuda", dtype=dtype)
            stream = torch.cuda.current_stream().cuda_stream
            warploom.gemm(256, 256, 256, name, target=self.target)(a, b, c, stream=stream)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(c, (a.float() @ b.float()).to(dtype)))

    def test_a_dynamic_m_is_that_of_the_tensors(self):
        one = warploom.gemm("1..=1024", 256, 256, layout="NT", target=self.target)
        ranges = warploom.gemm("1..=1024", 256, 256, layout="NT", target=self.target, ranges=3)
        b = torch.randint(-3, 4, (256, 256), device="cuda").to(torch.float16)
        stream = torch.cuda.current_stream().cuda_stream
        for m in [1, 100, 1024]:
            a = torch.randint(-3, 4, (m, 256), device="cuda").to(torch.float16)
            for kernels in [one, ranges]:
                # Rows beyond the last one of C stay as they are.
                whole = torch.full((m + 64, 256), 7, device="cuda", dtype=torch.float16)
                kernels(a, b, whole[:m], stream=stream)
                torch.cuda.synchronize()
                self.assertTrue(torch.equal(whole[:m], (a.float() @ b.float().t()).to(torch.float16)))
                self.assertTrue((whole[m:] == 7).all())
            with self.assertRaises(warploom.Error) as caught:
                one(a, b, whole, stream=stream)
            self.assertEqual(caught.exception.code, "size.value")

    def test_a_graph_records_launches(self):
        a, b = self.product(torch.float16)
        c = torch.empty(256, 256, device="cuda", dtype=torch.float16)
        kernels = warploom.gemm(256, 256, 256, target=self.target)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            kernels(a, b, c, stream=stream.cuda_stream)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kernels(a, b, c, stream=stream.cuda_stream)
        a.copy_(a.flip(0))
        c.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(c, a @ b))

    def test_another_stream_and_a_wrong_tensor(self):
        a, b = self.product(torch.float16)
        c = torch.empty(256, 256, device="cuda", dtype=torch.float16)
        kernels = warploom.gemm(256, 256, 256, target=self.target)
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        kernels(a, b, c, stream=other.cuda_stream)
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(c, a @ b))
        with self.assertRaises(warploom.Error) as caught:
            kernels(a, b.t(), c)
        self.assertEqual(caught.exception.code, "dlpack.strides")


if __name__ == "__main__":
    unittest.main()
