module reader

go 1.23

require github.com/erofs/go-erofs v0.3.1
