module github.com/coppice-dev/coppice/coppicetest

go 1.24.0
