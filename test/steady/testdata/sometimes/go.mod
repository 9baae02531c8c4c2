module example.com/sometimes

go 1.26
