"""Size and SHA-256 of every data file the tasks read, by its path inside the data folder."""

__all__ = ["CHECKSUMS"]

# The UCR files are those of the archive's release of 2018; those of 2015 have other names and other bytes.
CHECKSUMS: dict[str, tuple[int, str]] = {
    "bibtex/bibtex-test.arff": (1215637, "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922"),
    "bibtex/bibtex-train.arff": (2292961, "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174"),
    "bibtex/bibtex.xml": (5880, "08fe20013c1e75dcf1888c185f5187c95e76495b8518ce289b4d3afce38d1232"),
    "mnist/t10k-images-idx3-ubyte.gz": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    "mnist/t10k-labels-idx1-ubyte.gz": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    "mnist/train-images-idx3-ubyte.gz": (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "mnist/train-labels-idx1-ubyte.gz": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "ptb/ptb.test.txt": (449945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
    "ptb/ptb.train.txt": (5101618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "ptb/ptb.valid.txt": (399782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "ucr/UCRArchive_2018/Adiac/Adiac_TEST.tsv": (759919, "7bc80100ddd719b03acf1b584dc3b7db8a05709e49aaebf4d1b4abe7cb4b2701"),
    "ucr/UCRArchive_2018/Adiac/Adiac_TRAIN.tsv": (758161, "b15c09d9358b3ee424fe101c7a6345f03e274b1abe9f9d49e8ed5e7803285c20"),
    "ucr/UCRArchive_2018/ArrowHead/ArrowHead_TEST.tsv": (
        484229,
        "6bc7a83f66c0651d95fefefb2560011d6a877b6ca4c113dda1c07aeaed4737e2",
    ),
    "ucr/UCRArchive_2018/ArrowHead/ArrowHead_TRAIN.tsv": (
        99664,
        "04bb9fd2827650d3ec2f384507f083fbd4c3748f919cbace3831f87e0aff06a7",
    ),
    "ucr/UCRArchive_2018/Beef/Beef_TEST.tsv": (158655, "17cd4d7c06d71d5a6685923e82c222e418746693a02b83e30d11a979a209461f"),
    "ucr/UCRArchive_2018/Beef/Beef_TRAIN.tsv": (158643, "a62197379ea58236e8b9dea739a821b309ab6782d1521d5e5758cadefe90b3fe"),
    "ucr/UCRArchive_2018/BeetleFly/BeetleFly_TEST.tsv": (
        113860,
        "dad1cc930595c570abe8f047c8a29758ef192f8b7306973f876e6db61abcf3c0",
    ),
    "ucr/UCRArchive_2018/BeetleFly/BeetleFly_TRAIN.tsv": (
        114131,
        "636d819c61536893bc079e3656adf59593be103b17903358b682131f2230e22e",
    ),
    "ucr/UCRArchive_2018/CBF/CBF_TEST.tsv": (1283447, "9485e783f961cbc6343f7da504fd8f6f9502e9000fd379bc60c688ff5d637965"),
    "ucr/UCRArchive_2018/CBF/CBF_TRAIN.tsv": (42816, "eb25c656d86a28328bca2a3c4bd0dcd54f27546b6a83f84a635cf581a55cead4"),
    "ucr/UCRArchive_2018/Coffee/Coffee_TEST.tsv": (88249, "07f25cedb9fd819a201e7de6abbdc444695b4b16ee70295010e401f18c38babd"),
    "ucr/UCRArchive_2018/Coffee/Coffee_TRAIN.tsv": (88231, "a722ab8acd6c18b11b8fa835fbe523fc072e6ce4434b44d7919fa95152d377bf"),
    "ucr/UCRArchive_2018/CricketX/CricketX_TEST.tsv": (
        1323109,
        "b9920feabc357533fabcd6bb29ce274a8a45ecb62c347cc6d6adf619d700b5f0",
    ),
    "ucr/UCRArchive_2018/CricketX/CricketX_TRAIN.tsv": (
        1320672,
        "543808f2146934808d7c2cf3baf9080f562c1a3fa047853a1071d3c70c1be136",
    ),
    "ucr/UCRArchive_2018/DistalPhalanxOutlineCorrect/DistalPhalanxOutlineCorrect_TEST.tsv": (
        243818,
        "8a4d88d68ffc10d49be1605906dd86ca8c1147c7beba83c74bd1844d7242a899",
    ),
    "ucr/UCRArchive_2018/DistalPhalanxOutlineCorrect/DistalPhalanxOutlineCorrect_TRAIN.tsv": (
        527028,
        "981002fc4e15fee89426a9d71ba1ce442a438cee04eb3d2f39b7ad1f77f68d44",
    ),
    "ucr/UCRArchive_2018/DistalPhalanxTW/DistalPhalanxTW_TEST.tsv": (
        122709,
        "d5258e0149d1a28e6ff35af5360b28e1fc2dcafcf6ece32a75bfcc8f6351c650",
    ),
    "ucr/UCRArchive_2018/DistalPhalanxTW/DistalPhalanxTW_TRAIN.tsv": (
        351306,
        "4659610981370594961dd17716f2161453c53cc574711ee7c41e95d7e5f146a7",
    ),
    "ucr/UCRArchive_2018/ECG200/ECG200_TEST.tsv": (106740, "c8ac02caf98be23c47c044fde026219301ceaf0b2f97bc107bd0cd96330b867c"),
    "ucr/UCRArchive_2018/ECG200/ECG200_TRAIN.tsv": (106739, "bd08b37147ebf205231ad43e02c42dd5c14bc348f4ccc7614f85634c8916bf21"),
    "ucr/UCRArchive_2018/ECG5000/ECG5000_TEST.tsv": (
        7083836,
        "0192997dd1793880633bfb34ae3ad5129c09a8e0f210c469225451b92cdd8548",
    ),
    "ucr/UCRArchive_2018/ECG5000/ECG5000_TRAIN.tsv": (
        786687,
        "df86ac15d7e283e731db6be7865f5004b65bc639014cb8b9753c26e24a9092a1",
    ),
    "ucr/UCRArchive_2018/ECGFiveDays/ECGFiveDays_TEST.tsv": (
        1368697,
        "bb9706f13954be81bf9b47aa6e8634e94f11fdee93237e3c039d8822eef4439f",
    ),
    "ucr/UCRArchive_2018/ECGFiveDays/ECGFiveDays_TRAIN.tsv": (
        36470,
        "e81cc7d1b974324b432ce50bc6e9dac88e3111ffd46dccd1df1e4863e82022c3",
    ),
    "ucr/UCRArchive_2018/FaceAll/FaceAll_TEST.tsv": (
        2503257,
        "ae3cc831966b5b28684ca2563813bd550beb8648b3c3737d585b3eca79271d11",
    ),
    "ucr/UCRArchive_2018/FaceAll/FaceAll_TRAIN.tsv": (
        828094,
        "ac1957cc8aac3cfd7951a0d46e7ea1147fd3a23db3eeda2a30484764584a3242",
    ),
    "ucr/UCRArchive_2018/FaceFour/FaceFour_TEST.tsv": (
        349538,
        "72716dfe414e3c33255337f747c5c3aa7d8ba3073c3c62a50732c0abbfe8898f",
    ),
    "ucr/UCRArchive_2018/FaceFour/FaceFour_TRAIN.tsv": (
        95201,
        "fc607f610415432fef99fd19df6524758c1570b9cafd2c71d5afa06f9e922b02",
    ),
    "ucr/UCRArchive_2018/FacesUCR/FacesUCR_TEST.tsv": (
        3035325,
        "56c23d0505e7eb491f6933d63b635ca5536af6a2ff0fa06b0376ca9fb2fb87b5",
    ),
    "ucr/UCRArchive_2018/FacesUCR/FacesUCR_TRAIN.tsv": (
        296026,
        "b240b761de5aca4bb295a2dd5e5be4cf1d932888937749a7417eef5396745a7a",
    ),
    "ucr/UCRArchive_2018/FiftyWords/FiftyWords_TEST.tsv": (
        1402476,
        "97d2239bb9e6a7daa84b2e1417fd1202163877a71d3f8552f4a8b2d276b747fa",
    ),
    "ucr/UCRArchive_2018/FiftyWords/FiftyWords_TRAIN.tsv": (
        1385313,
        "1b47c2429c2c62501796f5439b8424685851c4cef755ab87cec24fbecb561544",
    ),
    "ucr/UCRArchive_2018/GunPoint/GunPoint_TEST.tsv": (
        251451,
        "5537eb2f3050e1514f3221b5f4c9799b350fb229ea15eed9e78bbae855505ccf",
    ),
    "ucr/UCRArchive_2018/GunPoint/GunPoint_TRAIN.tsv": (
        83332,
        "4d14e4f44a6230087cb4b4ed7844c8b0feb76f07a76108cc367d689e0de8f609",
    ),
    "ucr/UCRArchive_2018/InsectWingbeatSound/InsectWingbeatSound_TEST.tsv": (
        5889415,
        "34b906e17d0357984973b10910d554813427d20a78cdd6994bee3afb420039f5",
    ),
    "ucr/UCRArchive_2018/InsectWingbeatSound/InsectWingbeatSound_TRAIN.tsv": (
        654433,
        "f89acf4a24fcda5b0ba621c8b6e046f678c788d931fbd09e9f2efbf3adc222f6",
    ),
    "ucr/UCRArchive_2018/ItalyPowerDemand/ItalyPowerDemand_TEST.tsv": (
        273602,
        "ab22aa53de4ef55f2e2bcbf0518565704aeec8d76f48ef1180903bf5814c47fc",
    ),
    "ucr/UCRArchive_2018/ItalyPowerDemand/ItalyPowerDemand_TRAIN.tsv": (
        17832,
        "fab46ef99232ada65773ed89b131954a91ec1da69803159cb1566f320dbaf22e",
    ),
    "ucr/UCRArchive_2018/Lightning2/Lightning2_TEST.tsv": (
        451618,
        "0303f4100f7b728a8782f1a1e97562a4e6b4ec4c24733ac126391630ddc27c3a",
    ),
    "ucr/UCRArchive_2018/Lightning2/Lightning2_TRAIN.tsv": (
        444061,
        "3d83a87ed1f166b6b57fe4201e943499422bb29ca000299b901dd34f1545ac56",
    ),
    "ucr/UCRArchive_2018/MiddlePhalanxOutlineCorrect/MiddlePhalanxOutlineCorrect_TEST.tsv": (
        257311,
        "49332724500215c86b4a856833cc0964db24ba9b5e2c452f45da7139c1681b98",
    ),
    "ucr/UCRArchive_2018/MiddlePhalanxOutlineCorrect/MiddlePhalanxOutlineCorrect_TRAIN.tsv": (
        526171,
        "22dcf8b4938748e7237dba385073f9f148ecd9efa71c0e8cebf928acc64ac344",
    ),
    "wikitext-2/test.txt": (1256449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
    "wikitext-2/train.txt": (10797148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "wikitext-2/valid.txt": (1121681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
}
"""Path to (bytes, SHA-256 in hexadecimal)."""
