from phonate.cli import main

main()
