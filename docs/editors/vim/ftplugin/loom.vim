setlocal commentstring=#\ %s
setlocal comments=:#
setlocal formatprg=warploom\ fmt\ -
