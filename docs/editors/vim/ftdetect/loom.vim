autocmd BufRead,BufNewFile *.loom setfiletype loom
