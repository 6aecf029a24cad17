import sys, numpy as np, torch, time, traceback
from tests.models.support import *
from abele.zoo import ZOO
def one(name, optimizer="sgd", turns=1, replicas=1, double=True, **o):
    m = module_of(name, training=True)
    n=3
    data = {k: v.unflatten(0,(n,turns,replicas)) for k,v in batches(name, n*turns*replicas, training=True).items()}
    e,c = program_of(m, {k:v[0,0,0] for k,v in data.items()}, train=True, optimizer=optimizer, accumulate=turns, replicas=replicas, **o)
    t = TorchLoop(m, optimizer, replicas)
    d = TorchLoop(m.double(), optimizer, replicas); m.float()
    r=[]
    for i in range(n):
        s = {k:v[i] for k,v in data.items()}
        l = t.step(s); 
        ld = d.step({k: v.double() if v.is_floating_point() else v for k,v in s.items()})
        out = e.run({k:v.numpy() for k,v in s.items()})
        r.append((distance(out["loss"], ld), distance(l,ld)))
    w=[0,0,""]
    for pn,p in c.parameters.items():
        q = dict(d.module.named_parameters())[pn].detach().numpy(); b=dict(m.named_parameters())[pn].detach().numpy()
        scale = np.abs(q-b).max() or 1
        o_ = np.abs(e.read(pn)-q).max()/scale; th=np.abs(dict(t.module.named_parameters())[pn].detach().numpy()-q).max()/scale
        if o_>w[0]: w=[o_,th,pn]
    bb=0,""
    for bn in c.buffers:
        for rr in range(replicas):
            x = distance(e.read(bn,rr), d.buffers[rr][bn].numpy())
            bb=max(bb,(x,bn))
    print(name, optimizer, turns, replicas, o, "loss", ["%.1e/%.1e"%x for x in r], "w %.1e/%.1e %s"%tuple(w), "buf", bb, flush=True)
def inf(name):
    m = module_of(name); data=batches(name,1)
    s={k:v[0] for k,v in data.items()}
    e,c=program_of(m,s)
    o=e.run({k:v[None,None].numpy() for k,v in s.items()})[""][0,0]
    with torch.no_grad():
        t=m(**s).numpy(); d=m.double()(**{k: v.double() if v.is_floating_point() else v for k,v in s.items()}).numpy()
        m=m.float().half(); hs={k: v.half() if v.is_floating_point() else v for k,v in s.items()}
        e,c=program_of(m,hs)
        h=e.run({k:v[None,None].numpy() for k,v in hs.items()})[""][0,0]
        th=m(**hs).float().numpy(); 
        f=m.float()(**{k:v.float() if v.is_floating_point() else v for k,v in hs.items()}).numpy()
    print(name,"float %.1e torch %.1e; half %.1e torch %.1e"%(distance(o,d),distance(t,d),distance(h,f),distance(th,f)), flush=True)
if __name__=="__main__":
    import warnings; warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in sys.argv[1:] or ZOO:
        for f in (lambda: inf(name), lambda: one(name), lambda: one(name,"adam"), lambda: one(name,turns=2), lambda: one(name,replicas=2), lambda: one(name,turns=4,stages=2), lambda: one(name,recompute="layers"),lambda: one(name,turns=2,replicas=2,recompute="layers")):
            try: f()
            except Exception as x:
                print(name, "FAIL", type(x), str(x)[:300]); traceback.print_exc(limit=-3)
